/*
 * memplan: how much memory each GPU needs to train a model, what fills it,
 * whether it fits, how many FLOPs, GPU-hours and dollars it takes, and why.
 *
 * Order of arguments, everywhere: outputs first, then the object, then inputs
 * (a length right after its pointer), then the allocator, `errs` last.
 *
 * Ownership: an object received through `**out` belongs to the caller and is
 * released by its _free function, which accepts NULL. `*out` is NULL after a
 * failure. Strings returned by an accessor belong to the object they were
 * asked of, and live as long as it does.
 *
 * Threads: the library has no global state, prints nothing and never exits.
 * Distinct objects may be used from distinct threads at the same time; one
 * object may be read by many threads, and written by one at a time. Functions
 * that read JSON are the exception: the library beneath them keeps a global, so
 * calls of them must not overlap. These are _parse and _parse_as, _prices,
 * _import and _calibrate, and of the catalogue, whose models are JSON,
 * memplan_model_builtin and memplan_models_write.
 *
 * A worked example (tests/package/example.c is compiled and run by the tests):
 *
 *     memplan_error slot[8];
 *     memplan_errors errs = { slot, 8, 0 };
 *     memplan_model *model = NULL;
 *     memplan_setup *setup = NULL;
 *     memplan_report *report = NULL;
 *     uint64_t peak = 0;
 *     if (memplan_model_builtin(&model, "llama-7b", NULL, &errs) == MEMPLAN_OK
 *         && memplan_setup_new(&setup, NULL, &errs) == MEMPLAN_OK
 *         && memplan_setup_set(setup, "gpus", "64", &errs) == MEMPLAN_OK
 *         && memplan_setup_set(setup, "zero", "3", &errs) == MEMPLAN_OK
 *         && memplan_estimate(&report, model, setup, NULL, &errs) == MEMPLAN_OK
 *         && memplan_report_bytes(&peak, report, "memory.peak_allocated")
 *                == MEMPLAN_OK)
 *         printf("%llu bytes\n", (unsigned long long)peak);
 *     memplan_report_free(report);
 *     memplan_setup_free(setup);
 *     memplan_model_free(model);
 */
#ifndef MEMPLAN_MEMPLAN_H
#define MEMPLAN_MEMPLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(MEMPLAN_STATIC)
#define MEMPLAN_API
#elif defined(_WIN32)
#ifdef MEMPLAN_BUILD
#define MEMPLAN_API __declspec(dllexport)
#else
#define MEMPLAN_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define MEMPLAN_API __attribute__((visibility("default")))
#else
#define MEMPLAN_API
#endif

#if defined(__GNUC__)
#define MEMPLAN_MUST_USE __attribute__((warn_unused_result))
#else
#define MEMPLAN_MUST_USE
#endif

/* ==== Version ========================================================== */

#define MEMPLAN_VERSION_MAJOR 0
#define MEMPLAN_VERSION_MINOR 1
#define MEMPLAN_VERSION_PATCH 0
#define MEMPLAN_VERSION "0.1.0"

/** The version of the library that runs, as in MEMPLAN_VERSION. Static. */
MEMPLAN_API const char *memplan_version(void);

/** The version of the JSON library in use, such as "cJSON 1.7.15".
 *  Static storage inside the library. */
MEMPLAN_API const char *memplan_json_library(void);

/* ==== Status and errors ================================================ */

/* One row a status: name, pinned value (append only), text. */
#define MEMPLAN_STATUS_MAP(X)                                                  \
    X(OK, 0, "success")                                                        \
    X(E_ARG, 1, "bad argument")                                                \
    X(E_NOMEM, 2, "out of memory")                                             \
    X(E_SYNTAX, 3, "not valid JSON")                                           \
    X(E_SCHEMA, 4, "not a valid specification")                                \
    X(E_RANGE, 5, "value out of range")                                        \
    X(E_CONFLICT, 6, "impossible combination")                                 \
    X(E_UNKNOWN, 7, "unknown name")                                            \
    X(E_UNSUPPORTED, 8, "not modelled")                                        \
    X(E_OVERFLOW, 9, "number too large to compute with")                       \
    X(E_WRITE, 10, "write failed")

typedef enum memplan_status {
#define MEMPLAN_STATUS_ENUM(name, value, text) MEMPLAN_##name = (value),
    MEMPLAN_STATUS_MAP(MEMPLAN_STATUS_ENUM)
#undef MEMPLAN_STATUS_ENUM
} memplan_status;

/** The status in a few words ("out of memory"); "unknown status" for a value
 *  that is none. Static. */
MEMPLAN_API const char *memplan_status_text(memplan_status status);

/** One thing that is wrong. Holds no pointers, so that running out of memory
 *  can be reported too; texts are cut to fit and always end in NUL. */
typedef struct memplan_error {
    memplan_status status;
    uint32_t line;     /* in the JSON text, from 1; 0 when not about a text */
    uint32_t column;   /* in bytes, from 1; 0 likewise */
    size_t offset;     /* in bytes from the start of the text */
    char pointer[128]; /* RFC 6901, such as "/num_hidden_layers"; or "" */
    char key[64];      /* the setup key it is about, such as "tp"; or "" */
    char message[256]; /* lower case, no full stop, what is wrong */
    char hint[256];    /* what to write instead; or "" */
} memplan_error;

/** Where the caller wants errors. `item` has room for `capacity`; `count` is
 *  how many there were, and may exceed capacity (the rest is lost, the first
 *  ones are kept). Set count to 0 before a call. Every function accepts NULL
 *  for no report. */
typedef struct memplan_errors {
    memplan_error *item;
    size_t capacity;
    size_t count;
} memplan_errors;

/* ==== Memory and output ================================================ */

/** Where memory comes from. `resize(ctx, ptr, old_size, new_size)` acts as
 *  realloc when new_size > 0 (ptr NULL and old_size 0 to allocate; NULL when
 *  there is no memory, ptr then stays valid), and frees when new_size is 0.
 *  Copied on use; ctx must outlive every object made with it. */
typedef struct memplan_allocator {
    void *(*resize)(void *ctx, void *ptr, size_t old_size, size_t new_size);
    void *ctx;
} memplan_allocator;

/** Receives output in pieces. Returns false to say that it failed, after which
 *  it is not called again and the writing call returns MEMPLAN_E_WRITE. */
typedef bool memplan_write_fn(void *ctx, const char *text, size_t len);

typedef enum memplan_format {
    MEMPLAN_FORMAT_TABLE,    /* for people */
    MEMPLAN_FORMAT_JSON,     /* one object and a newline; names are stable */
    MEMPLAN_FORMAT_CSV,      /* RFC 4180, a header line first */
    MEMPLAN_FORMAT_MARKDOWN, /* the table's content as GitHub tables */
    MEMPLAN_FORMAT_SVG /* a picture; only MEMPLAN_VIEW_TRACE has one, the rest
                          return E_ARG */
} memplan_format;

/** How MEMPLAN_FORMAT_TABLE may look. Zeroed: no colour, nothing cut. */
typedef struct memplan_style {
    memplan_format format;
    bool colour; /* ANSI escape sequences allowed */
    int width;   /* columns of the terminal; 0: not one, nothing is wrapped
                      or cut */
} memplan_style;

/* ==== Models =========================================================== */

typedef struct memplan_model memplan_model;

/** Reads a model specification: a Hugging Face config.json, or a file in that
 *  dialect with "memplan": 1 (docs/adding-a-model.md).
 *
 *  out        the model, immutable from then on but for
 *             memplan_model_select()
 *  json       UTF-8, need not end in NUL, not kept
 *  name       what to call it when the text has no "name"; NULL for none
 *  allocator  NULL means malloc and free
 *
 *  Every bad field is reported, not only the first, with JSON pointer, line
 *  and column. Returns MEMPLAN_OK, E_ARG, E_NOMEM, E_SYNTAX (no JSON),
 *  E_SCHEMA (a field is missing or of the wrong type), E_RANGE, E_CONFLICT
 *  (fields contradict one another) or E_UNKNOWN (model_type, or a key where
 *  the text says "memplan": 1). */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_model_parse(
    memplan_model **out, const char *json, size_t len, const char *name,
    const memplan_allocator *allocator, memplan_errors *errs);

/** The same of a text whose model type is not known, or is another's: it is
 *  read as if it said `as` ("llama"; a model_type of Hugging Face), and every
 *  estimate of the model says so among its assumptions. `as` NULL: the text's
 *  own type. Returns what memplan_model_parse does; E_UNKNOWN also for `as`. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_model_parse_as(
    memplan_model **out, const char *json, size_t len, const char *name,
    const char *as, const memplan_allocator *allocator, memplan_errors *errs);

/** The catalogue's model of that name (with or without ".json"). Returns
 *  MEMPLAN_OK, E_ARG, E_UNKNOWN (with the nearest names as hint), E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_model_builtin(memplan_model **out, const char *name,
                      const memplan_allocator *allocator, memplan_errors *errs);

/** A file may describe several models, with 'text_config' and 'vision_config'.
 *  From here on the model is its part of that name: "text", "vision" or "all".
 *  At first it is what the file's class is for: the text of a language model,
 *  all of CLIP. Not while another thread reads the model. Returns MEMPLAN_OK,
 *  E_ARG, E_UNKNOWN (no such name), E_UNSUPPORTED (the file has no such part,
 *  or it is not modelled), E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_model_select(
    memplan_model *model, const char *part, memplan_errors *errs);

MEMPLAN_API void memplan_model_free(memplan_model *model);

/** What the specification calls itself, else the name given to _parse, else
 *  "". The model's. */
MEMPLAN_API const char *memplan_model_name(const memplan_model *model);

/** Exact number of parameters, tied tensors counted once
 *  (docs/method.md, eq. params). */
MEMPLAN_API uint64_t memplan_model_parameters(const memplan_model *model);

/** Writes what is known of one model: shapes, parameters by block, source.
 *  JSON: {"name", "model_type", "parameters", "source", "blocks": [...], ...}.
 *  Returns MEMPLAN_OK, E_WRITE, E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_model_write(const memplan_model *model, const memplan_style *style,
                    memplan_write_fn *write, void *ctx, memplan_errors *errs);

/** Writes how the model's text was understood: what was read, what the class
 *  filled in and from where, what it decides by itself, what was ignored.
 *  JSON, schema "memplan.import/1": {"spec": the same model as a specification
 *  that says all of it, "read": [...], "defaults": [...], "class": [...],
 *  "ignored": [...]}; of all parts of a file that is of what joins them, and
 *  "text" and "vision" have the same of each. Returns MEMPLAN_OK, E_WRITE,
 *  E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_model_write_import(
    const memplan_model *model, const memplan_style *style,
    memplan_write_fn *write, void *ctx, memplan_errors *errs);

/** Name of the catalogue's model number `index`, sorted; NULL past the end.
 *  Static. */
MEMPLAN_API const char *memplan_builtin_name(size_t index);

/** Writes the list of catalogue models. JSON: an array of
 *  {"name", "model_type", "parameters", "source"}. `allocator` serves the call
 *  alone. Returns MEMPLAN_OK, E_WRITE, E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_models_write(
    const memplan_style *style, memplan_write_fn *write, void *ctx,
    const memplan_allocator *allocator, memplan_errors *errs);

/* ==== GPUs ============================================================= */

/** Name of the catalogue's GPU number `index`, sorted; NULL past the end.
 *  Static. */
MEMPLAN_API const char *memplan_gpu_name(size_t index);

/** Writes the GPU catalogue, or the one row that `name` names (a name or an
 *  alias; NULL for all). Returns MEMPLAN_OK, E_UNKNOWN, E_WRITE. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_gpus_write(const char *name, const memplan_style *style,
                   memplan_write_fn *write, void *ctx, memplan_errors *errs);

/* ==== Setups =========================================================== */

typedef struct memplan_setup memplan_setup;

/** What kind of value a setup key takes. */
typedef enum memplan_type {
    MEMPLAN_TYPE_COUNT, /* whole number, SI suffix allowed: 64, 13B, 260e9 */
    MEMPLAN_TYPE_BYTES, /* with unit: 80GiB, 24GB, or a plain number of bytes */
    MEMPLAN_TYPE_REAL,  /* 0.45 */
    MEMPLAN_TYPE_BOOL,  /* true, false */
    MEMPLAN_TYPE_CHOICE, /* one of `choices` */
    MEMPLAN_TYPE_LIST,   /* comma list: of `choices`, or of numbers */
    MEMPLAN_TYPE_NAME    /* a catalogue name */
} memplan_type;

/** One setup key: the row that the parser, --help, completions, JSON setup
 *  files, the man page and memplan_setup_set all share. Static. */
typedef struct memplan_field {
    const char *key; /* "micro_batch"; the CLI says --micro-batch */
    memplan_type type;
    const char *choices;      /* space separated; "" when free */
    const char *default_text; /* "1", or in words when it depends */
    const char *group;        /* heading in --help: "Parallelism" */
    const char *doc;          /* one line, lower case, no full stop */
    const char *placeholder;  /* "N", "BYTES", "NAME": for --help */
    double min, max; /* of a number or a list's, both allowed; else both 0 */
} memplan_field;

/** Row number `index` of the table of keys; NULL past the end. */
MEMPLAN_API const memplan_field *memplan_setup_field(size_t index);

/** A setup with nothing set: every key at its default. Returns MEMPLAN_OK,
 *  E_ARG, E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_setup_new(memplan_setup **out, const memplan_allocator *allocator,
                  memplan_errors *errs);

MEMPLAN_API void memplan_setup_free(memplan_setup *setup);

/** Sets one key; a later value replaces an earlier one. Returns MEMPLAN_OK,
 *  E_UNKNOWN (key or name, nearest one as hint), E_ARG (not a value of the
 *  key's type), E_RANGE. What keys mean together is checked by _estimate. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_setup_set(memplan_setup *setup, const char *key, const char *value,
                  memplan_errors *errs);

/** Sets many keys from a JSON object {"zero": 3, "gpu": "h100-80gb", ...};
 *  null leaves a key unset. Every bad key is reported, with line and column;
 *  the good ones are set all the same. Returns what memplan_setup_set does,
 *  E_SYNTAX (no JSON), E_SCHEMA (no object, a key twice) or E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_setup_parse(
    memplan_setup *setup, const char *json, size_t len, memplan_errors *errs);

/** Whether the setup has a value of its own for a key: set, or read from a
 *  file. False for a key that is none. */
MEMPLAN_API bool memplan_setup_has(const memplan_setup *setup, const char *key);

/** Prices from a JSON object {"a100-80gb": 1.10, ...}, US dollars per GPU-hour,
 *  instead of the catalogue's; the key `price` overrides both. Every bad entry
 *  is reported, with line and column; the good ones count all the same. Returns
 *  MEMPLAN_OK, E_UNKNOWN (no such GPU, nearest one as hint), E_ARG (no price),
 *  E_SYNTAX, E_SCHEMA or E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_setup_prices(
    memplan_setup *setup, const char *json, size_t len, memplan_errors *errs);

/** Sets the keys that another program's configuration speaks of, as it would
 *  be run: what the text leaves out is that program's default. What has no
 *  effect here, is not modelled, or is not known is said under `assumptions`
 *  of every estimate, with `name`, the file's. Every bad value is reported,
 *  with line and column; the good ones are set all the same. `dialect`:
 *  "deepspeed" (ds_config.json), "training-args" (transformers'
 *  TrainingArguments as JSON, YAML or a script's flags), "accelerate" (Accelerate's YAML),
 *  "megatron-args" (a launch script's flags, or YAML with MODEL_ARGS),
 *  "torchtitan" (its job configuration, TOML), "torchrun" (a script that
 *  calls it: GPUs and nodes alone), "hostfile" (DeepSpeed's) or "peft"
 *  (adapter_config.json). Returns what
 *  memplan_setup_parse does, E_UNKNOWN (no such dialect), E_CONFLICT (values
 *  contradict one another). */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_setup_import(
    memplan_setup *setup, const char *dialect, const char *text, size_t len,
    const char *name, memplan_errors *errs);

/** Writes a setup as the launch file of another program: a dialect of
 *  memplan_setup_import, or "megatron" for its script, which that reads again,
 *  to the same estimate. "torchrun" is the line that starts the program, of
 *  Megatron-LM with its flags. That it is the same estimate is made sure of: a
 *  key that such a file has no word for, or another one, is E_UNSUPPORTED, each
 *  of them reported. What the file leaves to others (the model, the GPU; its
 *  code's kernels, an adapter, but in "peft") stays the caller's.
 *  Returns what memplan_estimate does, E_UNKNOWN (no such dialect), E_WRITE. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_emit(
    const memplan_model *model, const memplan_setup *setup, const char *dialect,
    memplan_write_fn *write, void *ctx, memplan_errors *errs);

/** What the file that memplan_emit writes leaves to others: of each key of the
 *  setup that the file does not say, and that neither a default nor other keys
 *  come to, an item in the caller's `unsaid`, with status MEMPLAN_OK, the key,
 *  its value in the message, and in the hint who says it where that is known
 *  ("gradient_checkpointing true of TrainingArguments says it"). The file's
 *  setup with these keys set beside it is the whole one. Items hold no pointers
 *  and nothing is owned; `count` may exceed capacity, as of errors. `unsaid`
 *  must not be `errs`. Returns what memplan_emit does, but E_WRITE; whether
 *  such a file may be written that alone makes sure of. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_emit_unsaid(
    const memplan_model *model, const memplan_setup *setup, const char *dialect,
    memplan_errors *unsaid, memplan_errors *errs);

/** A file that the last text read by memplan_setup_import goes on in, as the
 *  text names it, and its dialect; NULL when there is none. After a "hostfile"
 *  was read there may be another. The setup's, until the next import. */
MEMPLAN_API const char *memplan_setup_pending(const memplan_setup *setup,
                                              const char **dialect);

/** Does without the file that memplan_setup_pending names, as if the text did
 *  not name it: what was read stays, memplan_setup_pending returns NULL from
 *  then on, and the assumptions of every estimate say that the file was not
 *  read and which option adds it. Returns nothing and cannot fail; nothing
 *  happens when no file is pending or `setup` is NULL. */
MEMPLAN_API void memplan_setup_pending_skip(memplan_setup *setup);

/* ==== Estimate, compute ================================================ */

typedef struct memplan_report memplan_report;

/** The main job: memory per GPU by component, whether it fits, FLOPs, time,
 *  cost (docs/method.md).
 *
 *  Returns MEMPLAN_OK, E_CONFLICT (the layout is impossible; each reason is
 *  reported), E_UNSUPPORTED (a key asks for what is not modelled yet),
 *  E_OVERFLOW, E_NOMEM. "Does not fit" is an answer, not a failure. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_estimate(memplan_report **out, const memplan_model *model,
                 const memplan_setup *setup, const memplan_allocator *allocator,
                 memplan_errors *errs);

/** As memplan_estimate, into a report that exists (made by memplan_estimate),
 *  whose memory is used again: no allocation once it has grown. After a
 *  failure the report holds nothing. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_estimate_again(memplan_report *report, const memplan_model *model,
                       const memplan_setup *setup, memplan_errors *errs);

/** FLOPs, GPU-hours, days, cost, compute-optimal size, GPUs for a deadline.
 *  `model` may be NULL when the setup says `params` or `budget`. Returns what
 *  memplan_estimate does, or E_ARG when there is no size to compute with. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_compute(memplan_report **out, const memplan_model *model,
                const memplan_setup *setup, const memplan_allocator *allocator,
                memplan_errors *errs);

MEMPLAN_API void memplan_report_free(memplan_report *report);

/** What to write of a report. */
typedef enum memplan_view {
    MEMPLAN_VIEW_SUMMARY, /* the answer */
    MEMPLAN_VIEW_EXPLAIN, /* every number: formula, numbers put in, source */
    MEMPLAN_VIEW_TRACE,   /* the step, allocation by allocation: what is alive
                             at the peak (table, Markdown), the timeline (CSV),
                             Chrome trace events (JSON), a picture (SVG) */
    MEMPLAN_VIEW_TRACE_FIRST /* the first step, which makes the optimizer's
                                states, instead of a later one */
} memplan_view;

/** Writes a report. JSON is the schema "memplan.estimate/1",
 *  "memplan.compute/1" or "memplan.explain/1". Deterministic: the same report
 *  gives the same bytes. What would make an estimate fit is worked out here, by
 *  some twenty more of them: memplan_estimate does not. Returns MEMPLAN_OK,
 *  E_ARG (the report holds nothing), E_WRITE, E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_report_write(
    const memplan_report *report, memplan_view view, const memplan_style *style,
    memplan_write_fn *write, void *ctx, memplan_errors *errs);

/** Looks one number up by its place in the JSON report, such as
 *  "memory.peak_allocated" or "compute.gpu_hours". _bytes is for the
 *  integers, _number for any number. Those of "changes[i]" are worked out by
 *  each call, some twenty estimates. Returns MEMPLAN_OK, or E_UNKNOWN when
 *  there is no such number, it is null, or memory ran out; *out is 0 then. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_report_bytes(
    uint64_t *out, const memplan_report *report, const char *path);
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_report_number(
    double *out, const memplan_report *report, const char *path);

/** True when the estimate fits on the GPU (memory.fits). */
MEMPLAN_API bool memplan_report_fits(const memplan_report *report);

/* ==== Inverse questions ================================================ */

typedef struct memplan_found memplan_found;

/** The extreme value with which the estimate still fits, `what` being
 *
 *    micro_batch  the largest; with global_batch in the setup that is held,
 *                 else grad_accum
 *    seq_len      the longest, in steps of 128 tokens
 *    gpus         the fewest: in one node what the layout divides, beyond it
 *                 whole nodes
 *    layers       the deepest model that is otherwise `model`
 *    params       the largest model of `model`'s proportions
 *
 *  (docs/method.md, eq. find). "Nothing fits" is an answer, not a failure.
 *  Returns what memplan_estimate does; E_UNKNOWN (of `what`), E_CONFLICT also
 *  where a key of the setup contradicts the question, E_UNSUPPORTED where the
 *  model has no such size. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_find(
    memplan_found **out, const memplan_model *model, const memplan_setup *setup,
    const char *what, const memplan_allocator *allocator, memplan_errors *errs);

MEMPLAN_API void memplan_found_free(memplan_found *found);

/** The value: false, and *out is 0, where nothing fits. */
MEMPLAN_API bool memplan_found_value(uint64_t *out, const memplan_found *found);

/** The estimate with that value, NULL where nothing fits; and with the next
 *  one, which does not fit, or where nothing does with the least demanding;
 *  NULL where there is no next one. The object's. */
MEMPLAN_API const memplan_report *memplan_found_best(
    const memplan_found *found);
MEMPLAN_API const memplan_report *memplan_found_next(
    const memplan_found *found);

/** Writes the answer and the next value's overflow. JSON: schema
 *  "memplan.find/1": {"find", "fits", "value", "held", "best": {...},
 *  "next": {...}, ...}. Returns MEMPLAN_OK, E_WRITE. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_found_write(const memplan_found *found, const memplan_style *style,
                    memplan_write_fn *write, void *ctx, memplan_errors *errs);

/* ==== Every GPU of the catalogue ======================================= */

typedef struct memplan_offers memplan_offers;

/** What memplan_compute says of each GPU of the catalogue, the cheapest that
 *  fits first; where the setup has `days`, on as many of each as that takes.
 *  `model` may be NULL as there. A GPU on which the setup is impossible is
 *  kept, with the reason. Returns what memplan_compute does; E_CONFLICT where
 *  the setup says `gpu` or what describes one; where no GPU is possible, the
 *  default's error. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_offers_new(memplan_offers **out, const memplan_model *model,
                   const memplan_setup *setup,
                   const memplan_allocator *allocator, memplan_errors *errs);

MEMPLAN_API void memplan_offers_free(memplan_offers *offers);

/** Writes a line a GPU. JSON: schema "memplan.offers/1": {"model",
 *  "parameters", "tokens", "deadline_days", "offers": [...], "impossible":
 *  [{"gpu", "reason"}]}. Returns MEMPLAN_OK, E_WRITE. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_offers_write(const memplan_offers *offers, const memplan_style *style,
                     memplan_write_fn *write, void *ctx, memplan_errors *errs);

/* ==== Assertions ======================================================= */

typedef struct memplan_check memplan_check;

/** A check: cases, each a model, a setup and assertions on its estimate; none
 *  yet. Returns MEMPLAN_OK, E_ARG, E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_check_new(memplan_check **out, const memplan_allocator *allocator,
                  memplan_errors *errs);

MEMPLAN_API void memplan_check_free(memplan_check *check);

/** One kind of assertion: "max-memory" and its fellows. Static. */
typedef struct memplan_assertion {
    const char *name;        /* "max_memory"; the CLI says --max-memory */
    memplan_type type;       /* of its limit */
    const char *path;        /* of the number in the JSON report */
    const char *doc;         /* one line */
    const char *placeholder; /* "BYTES" */
} memplan_assertion;

/** Row number `index` of the table of assertions; NULL past the end. */
MEMPLAN_API const memplan_assertion *memplan_check_assertion(size_t index);

/** Evaluates one case and keeps its result. `names` and `limits` are `count`
 *  assertions; with none the assertion is that it fits. The case fails when
 *  an assertion does not hold; *held (may be NULL) says whether all did.
 *  Returns MEMPLAN_OK also then; E_UNKNOWN, E_ARG for a bad assertion. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_check_case(
    bool *held, memplan_check *check, const char *case_name,
    const memplan_report *report, const char *const *names,
    const char *const *limits, size_t count, memplan_errors *errs);

/** Writes a line a case: "ok" or "FAIL" first; or schema "memplan.check/1".
 *  Returns MEMPLAN_OK, E_WRITE, E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_check_write(const memplan_check *check, const memplan_style *style,
                    memplan_write_fn *write, void *ctx, memplan_errors *errs);

/** Reads a file of cases: {"cases": [{"name", "model", "setup": {...},
 *  "assert": {"max_memory": "70GiB", ...}}]} and evaluates them all.
 *  `model` is a catalogue name or an inline specification; for any other
 *  string `load` is asked for the text of that file: it returns true and the
 *  text (owned by it, valid until the next call), or false. *held (may be NULL)
 *  says whether every case could be evaluated and held. Every mistake is
 *  reported, with JSON pointer, line and column; good cases are evaluated
 *  beside bad ones. Returns MEMPLAN_OK also where a case does not hold, else
 *  the status of the first mistake. */
typedef bool memplan_load_fn(void *ctx, const char *name, const char **text,
                             size_t *len);
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_check_parse(
    bool *held, memplan_check *check, const char *json, size_t len,
    memplan_load_fn *load, void *ctx, memplan_errors *errs);

/* ==== Measured runs ==================================================== */

typedef struct memplan_score memplan_score;

/** A score: runs that somebody measured, each predicted; none yet. Returns
 *  MEMPLAN_OK, E_ARG, E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_score_new(memplan_score **out, const memplan_allocator *allocator,
                  memplan_errors *errs);

MEMPLAN_API void memplan_score_free(memplan_score *score);

/** Reads measured runs, one JSON object a line (docs/accuracy.md, "Rows"), and
 *  predicts each; blank lines are passed over. A row that memplan cannot
 *  predict (its model or setup is not modelled, or impossible) is kept with
 *  the first error's message as the reason and is no failure. A line of kind
 *  "peer" is what another estimator says of a row, one of kind "remark" why
 *  a row is off. A line that is no row is: every mistake is reported, with JSON pointer, line and column,
 *  and good lines are kept beside bad ones. May be called again, for another
 *  file. Returns MEMPLAN_OK, E_ARG, E_NOMEM, or the status of the first
 *  mistake. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_score_parse(
    memplan_score *score, const char *text, size_t len, memplan_errors *errs);

/** The median of |predicted / measured - 1| over the rows of a group and a
 *  metric (NULL: of all), but for those that need what no setup key can say.
 *  Returns MEMPLAN_OK, E_NOMEM, or E_UNKNOWN when there is no such row; *out
 *  is 0 then. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_score_median(double *out, const memplan_score *score, const char *group,
                     const char *metric);

/** Rows that were predicted, fits and out-of-memory ones among them. */
MEMPLAN_API size_t memplan_score_predicted(const memplan_score *score);

/** Whether the overall median is at most `limit`: "2%" or "0.02". Without a
 *  row that has an error it is not. Returns MEMPLAN_OK, E_NOMEM, or E_ARG for
 *  a bad limit. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_score_held(bool *held, const memplan_score *score, const char *limit,
                   memplan_errors *errs);

/** Writes the errors by group and overall, the worst rows, and what was
 *  skipped; or schema "memplan.score/1"; as CSV a line a row. `by` is what to
 *  group by: group (also for NULL), metric, or the setup key zero, tp, pp, vpp,
 *  cp, ep, recompute, lora (its rank), base_dtype, precision, optimizer,
 *  offload_optimizer, offload_params, offload_activations or framework.
 *  Returns MEMPLAN_OK, E_ARG, E_UNKNOWN (of `by`), E_WRITE,
 *  E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_score_write(
    const memplan_score *score, const char *by, const memplan_style *style,
    memplan_write_fn *write, void *ctx, memplan_errors *errs);

/* ==== Calibration ====================================================== */

typedef struct memplan_calibration memplan_calibration;

/** A calibration: steps measured on one cluster, and the constants with which
 *  they are predicted best (docs/method.md, eq. calibration); none yet.
 *  Returns MEMPLAN_OK, E_ARG, E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_calibration_new(
    memplan_calibration **out, const memplan_allocator *allocator,
    memplan_errors *errs);

MEMPLAN_API void memplan_calibration_free(memplan_calibration *calibration);

/** Reads measured runs as memplan_score_parse does; those of another kind than
 *  "throughput" are passed over, those that cannot be predicted, that have
 *  "x-needs" or a given MFU, or are there twice, are not fitted to. May be
 *  called again, for another file. Returns what memplan_score_parse does. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_calibration_parse(memplan_calibration *calibration, const char *text,
                          size_t len, memplan_errors *errs);

/** Fits the constants to every row read. Returns MEMPLAN_OK, E_ARG (there is no
 *  row to fit to), E_CONFLICT (rows of two GPUs), E_NOMEM. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_calibration_fit(memplan_calibration *calibration, memplan_errors *errs);

/** What was fitted: "products", "attention", "memory" and "network" multiply
 *  rates, "host" the time of a kernel's start; "error.before", "error.after"
 *  and "error.left_out" are means of |predicted / measured - 1| without them,
 *  with them, and of rows that were left out of the fit; "at_bound" is how many
 *  of the five stopped at their bound and are no speeds, "stray" how many rows
 *  are further off, with them, than a constant may move. Returns MEMPLAN_OK,
 *  E_ARG, or E_UNKNOWN when there is no such number; *out is 0 then. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_calibration_number(
    double *out, const memplan_calibration *calibration, const char *name);

/** Writes what was fitted: constants, how far each moved, the error of each
 *  row before and after; or schema "memplan.calibration/1", which the two
 *  below read; as CSV a line a row. Returns MEMPLAN_OK, E_ARG (nothing was
 *  fitted), E_WRITE. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status memplan_calibration_write(
    const memplan_calibration *calibration, const memplan_style *style,
    memplan_write_fn *write, void *ctx, memplan_errors *errs);

/** Takes the constants of a calibration file into a setup: times are predicted
 *  with them, which is said under `assumptions` with `name`, the file's. An
 *  estimate for another GPU than the file's is E_CONFLICT. Returns MEMPLAN_OK,
 *  E_ARG, E_SYNTAX, E_SCHEMA, E_UNKNOWN (of a constant or GPU), E_RANGE,
 *  E_NOMEM; after a failure the setup is as it was. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_setup_calibrate(memplan_setup *setup, const char *text, size_t len,
                        const char *name, memplan_errors *errs);

/** The same for every row of kind "throughput" that a score reads from then
 *  on; those of another GPU are skipped. */
MEMPLAN_MUST_USE MEMPLAN_API memplan_status
memplan_score_calibrate(memplan_score *score, const char *text, size_t len,
                        const char *name, memplan_errors *errs);

#ifdef __cplusplus
}
#endif

#endif
