/*
 * What a search may choose from: values of a setup key, or models of another
 * size in the proportions of the one given. Owns what is held while a value
 * varies; knows no byte.
 */
#include "plan/find.h"

#include "base/count.h"
#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

enum {
    SEQ_STEP = 128, /* tokens: what attention kernels take at a time */
    BATCHES_MAX = 65536,
    SEQ_MAX = 100000000,
    GPUS_MAX = 65536,
    NODE_GPUS = 8, /* the default of gpus_per_node */
    LAYERS_TRIED = 4096,
    WIDTH_STEP = 256 /* what widths of MLPs are a multiple of, where they are */
};

const char *find_name(enum find_what what)
{
#define FIND_WORD(id, text) text,
    static const char *const names[] = { FIND_MAP(FIND_WORD) };
#undef FIND_WORD
    return names[what];
}

static uint64_t lcm(uint64_t a, uint64_t b)
{
    return a / gcd_u64(a, b) * b;
}

static uint64_t setup_or(const struct setup *s, enum setup_key key,
                         uint64_t usual)
{
    return s->set[key] ? s->v[key].n : usual;
}

/* ---- what contradicts the question ---- */

static const struct {
    enum find_what what;
    enum setup_key key;
    const char *why;
} contradictions[] = {
    { FIND_MICRO_BATCH, KEY_MICRO_BATCH, "is what is looked for" },
    { FIND_SEQ_LEN, KEY_SEQ_LEN, "is what is looked for" },
    { FIND_GPUS, KEY_GPUS, "is what is looked for" },
    { FIND_GPUS, KEY_DP, "fixes the number of GPUs" },
    { FIND_LAYERS, KEY_PIPELINE_LAYERS, "fixes the number of layers" },
    { FIND_PARAMS, KEY_PARAMS, "is what is looked for" },
    { FIND_PARAMS, KEY_PIPELINE_LAYERS, "fixes the number of layers" },
};

/* What a launch file gives is named, and left out, there. */
static void hint_out(const struct candidates *c, enum setup_key key,
                     memplan_error *e)
{
    char said[SETUP_SAID_TEXT];
    if (setup_said(c->setup, key, said) == NULL) {
        diag_hint(e, "leave '%s' out", setup_field(key)->key);
        return;
    }
    str_append(e->message, sizeof(e->message), " (%s)", said);
    diag_hint(e, "leave it out of the file");
}

/* The search is by what sequences of one length need. */
static void refuse_lengths(const struct candidates *c, struct diag *d)
{
    static const enum setup_key keys[] = { KEY_LENGTHS, KEY_LENGTH_MEAN };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!c->setup->set[keys[i]])
            continue;
        memplan_error *e = setup_error(
            d, MEMPLAN_E_UNSUPPORTED, keys[i],
            "find %s: samples of different lengths are not modelled there",
            find_name(c->what));
        diag_hint(e, "leave '%s' out, and estimate what is found with it",
                  setup_field(keys[i])->key);
    }
}

static void refuse_given(const struct candidates *c, struct diag *d)
{
    const struct setup *s = c->setup;
    refuse_lengths(c, d);
    for (size_t i = 0; i < sizeof contradictions / sizeof contradictions[0];
         i++) {
        const enum setup_key key = contradictions[i].key;
        if (contradictions[i].what != c->what || !s->set[key])
            continue;
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, key, "find %s: '%s' is given, and %s",
            find_name(c->what), setup_field(key)->key, contradictions[i].why);
        hint_out(c, key, e);
    }
    if (c->what != FIND_MICRO_BATCH || !s->set[KEY_GLOBAL_BATCH]
        || !s->set[KEY_GRAD_ACCUM])
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_GRAD_ACCUM,
                    "find micro_batch: 'global_batch' and 'grad_accum' are "
                    "given, and they leave one value");
    diag_hint(e, "leave one of 'global_batch' and 'grad_accum' out");
}

static void refuse(const struct candidates *c, const char *what,
                   const char *hint, struct diag *d)
{
    memplan_error *e =
        diag_add(d, MEMPLAN_E_UNSUPPORTED, "find %s is not there for %s",
                 find_name(c->what), what);
    diag_hint(e, "%s", hint);
}

/* Models that have no one depth or width. */
static void refuse_model(const struct candidates *c, struct diag *d)
{
    const struct spec *m = &c->model->spec;
    const bool sized = c->what == FIND_LAYERS || c->what == FIND_PARAMS;
    if (c->what == FIND_SEQ_LEN && !spec_is_language(m))
        refuse(c, "a model that reads no words alone",
               "its sequence is the picture's or the spectrum's: 'image' says "
               "how large",
               d);
    else if (sized && spec_is_convnet(m))
        refuse(c, "a network of convolutions", "find micro_batch is", d);
    else if (sized && m->decoder_layers > 0)
        refuse(c, "a model of two stacks", "write its file with other sizes",
               d);
    else if (sized && m->vision != NULL)
        refuse(c, "all parts of a file", "choose one: --part text", d);
    else if (c->what == FIND_PARAMS
             && (m->kv_rank > 0 || m->mixer != MIX_ATTENTION))
        refuse(c, "latent attention or layers with a state",
               "find layers varies the depth alone", d);
}

/* ---- lists ---- */

static memplan_status list_divisors(struct candidates *c, uint64_t n,
                                    struct diag *d)
{
    uint64_t count = 0;
    for (uint64_t i = 1; i <= n; i++)
        count += n % i == 0;
    c->list = ARENA_NEW(c->list_arena, uint64_t, count);
    if (c->list == NULL)
        return diag_nomem(d);
    for (uint64_t i = 1; i <= n; i++) {
        if (n % i == 0)
            c->list[c->n++] = i;
    }
    return MEMPLAN_OK;
}

/* As the setup splits GPUs, or would if all else were possible. 0: out of
 * memory. */
static uint64_t count_replicas(const struct candidates *c)
{
    struct diag unsaid;
    struct run *run = ARENA_NEW(c->list_arena, struct run, 1);
    if (run == NULL)
        return 0;
    diag_init(&unsaid, NULL);
    setup_resolve(run, c->setup, &c->model->spec, 0, &unsaid);
    return max_u64(run->dp, 1);
}

static memplan_status init_micro_batch(struct candidates *c, char *held,
                                       struct diag *d)
{
    const struct setup *s = c->setup;
    if (!s->set[KEY_GLOBAL_BATCH]) {
        c->unit = 1;
        c->n = BATCHES_MAX;
        c->monotone = true;
        str_format(held, FIND_TEXT,
                   "grad_accum is held, and global_batch is micro_batch x "
                   "grad_accum x dp");
        return MEMPLAN_OK;
    }
    const uint64_t dp = count_replicas(c);
    if (dp == 0)
        return diag_nomem(d);
    const uint64_t batch = s->v[KEY_GLOBAL_BATCH].n;
    str_format(held, FIND_TEXT,
               "global_batch %" PRIu64 " is held: each of dp %" PRIu64
               " has %" PRIu64 " sequence%s a step, micro_batch divides them "
               "and grad_accum is the rest",
               batch, dp, batch / dp, unit_s((double)(batch / dp)));
    return list_divisors(c, max_u64(batch / dp, 1), d);
}

static void init_seq_len(struct candidates *c, char *held)
{
    const struct setup *s = c->setup;
    c->unit =
        lcm(SEQ_STEP, 2 * setup_or(s, KEY_CP, 1) * setup_or(s, KEY_TP, 1));
    if (!s->set[KEY_IMAGE]) /* the text has the images' tokens */
        c->skipped =
            setup_or(s, KEY_IMAGES, 1) * c->model->spec.image_tokens / c->unit;
    c->n = SEQ_MAX / c->unit - c->skipped;
    c->monotone = true;
    str_format(held, FIND_TEXT,
               "the batch is held; sequences are multiples of %" PRIu64
               " tokens",
               c->unit);
}

/* All the layout divides within a node, whole nodes beyond. */
static memplan_status init_gpus(struct candidates *c, char *held,
                                struct diag *d)
{
    const struct setup *s = c->setup;
    const uint64_t node = setup_or(s, KEY_GPUS_PER_NODE, NODE_GPUS);
    const uint64_t unit = setup_or(s, KEY_TP, 1) * setup_or(s, KEY_PP, 1)
                          * setup_or(s, KEY_CP, 1);
    const uint64_t nodes = lcm(unit, node);
    const uint64_t inside = node / unit; /* node itself among them or not */
    c->list = ARENA_NEW(c->list_arena, uint64_t, inside + GPUS_MAX / nodes + 1);
    if (c->list == NULL)
        return diag_nomem(d);
    for (uint64_t i = max_u64(GPUS_MAX / nodes, 1); i > 0; i--) {
        if (i * nodes > node)
            c->list[c->n++] = i * nodes;
    }
    for (uint64_t i = inside; i > 0; i--)
        c->list[c->n++] = i * unit;
    str_format(held, FIND_TEXT, "%s; candidates are ",
               s->set[KEY_GLOBAL_BATCH]
                   ? "global_batch is held"
                   : "micro_batch and grad_accum are held, and global_batch "
                     "grows with dp");
    if (unit == 1)
        str_append(held, FIND_TEXT,
                   "all numbers of GPUs up to a node of %" PRIu64, node);
    else
        str_append(held, FIND_TEXT,
                   "multiples of %" PRIu64 " GPUs in a node of %" PRIu64, unit,
                   node);
    str_append(held, FIND_TEXT, ", multiples of %" PRIu64 " beyond", nodes);
    return MEMPLAN_OK;
}

memplan_status candidates_init(struct candidates *c, char *held, struct diag *d)
{
    refuse_given(c, d);
    refuse_model(c, d);
    if (d->status != MEMPLAN_OK)
        return d->status;
    const struct spec *m = &c->model->spec;
    switch (c->what) {
    case FIND_MICRO_BATCH: return init_micro_batch(c, held, d);
    case FIND_SEQ_LEN: init_seq_len(c, held); break;
    case FIND_GPUS: return init_gpus(c, held, d);
    case FIND_LAYERS:
        c->unit = 1;
        c->n = LAYERS_TRIED;
        str_format(held, FIND_TEXT,
                   "width, heads, MLP and vocabulary are held, layers vary");
        break;
    case FIND_PARAMS:
        c->unit = 1;
        c->n = LAYERS_TRIED;
        str_format(held, FIND_TEXT,
                   "layers, heads, width and MLP grow as %" PRIu64 " : %" PRIu64
                   " : %" PRIu64 " : %" PRIu64
                   "; the width of a head, %sexperts' number and vocabulary "
                   "are held",
                   m->layers, m->heads, m->hidden,
                   m->ffn > 0 ? m->ffn : m->expert_ffn,
                   m->kv_heads < m->heads ? "key and value heads, " : "");
        break;
    case FIND_COUNT: break;
    }
    return MEMPLAN_OK;
}

/* ---- models of another size ---- */

/* A list of layers goes on as it began. */
static bool stretch(struct candidates *c, struct pattern *p, uint64_t before)
{
    if (p->listed == NULL)
        return true;
    uint8_t *listed = ARENA_NEW(&c->arena, uint8_t, c->spec.layers);
    for (uint64_t i = 0; i < c->spec.layers && listed != NULL; i++)
        listed[i] = p->listed[i % before];
    p->listed = listed;
    return listed != NULL;
}

static bool set_layers(struct candidates *c, uint64_t layers)
{
    struct spec *m = &c->spec;
    const uint64_t before = m->layers;
    m->layers = layers;
    if (!stretch(c, &m->slides, before) || !stretch(c, &m->rotates, before)
        || !stretch(c, &m->attends, before) || !stretch(c, &m->mixes, before)
        || !stretch(c, &m->sparse, before))
        return false;
    const bool slid = m->sliding_layers > 0;
    m->sliding_layers = 0;
    for (uint64_t i = 0; i < layers && slid; i++)
        m->sliding_layers += pattern_has(&m->slides, i);
    return true;
}

/* n of the family's `of`, at `to` of them, in steps that n itself keeps. */
static uint64_t in_proportion(uint64_t n, uint64_t to, uint64_t of)
{
    uint64_t step = 1;
    while (step < WIDTH_STEP && n % (2 * step) == 0)
        step *= 2;
    return max_u64((n * to + of * step / 2) / (of * step), n > 0) * step;
}

/* Heads nearest to the proportion of the layers, a multiple of the key and
 * value heads; all widths follow the heads. */
static void set_width(struct spec *m, const struct spec *base)
{
    const uint64_t unit = base->kv_heads < base->heads ? base->kv_heads : 1;
    const uint64_t heads =
        max_u64((base->heads * m->layers + base->layers * unit / 2)
                    / (base->layers * unit),
                1)
        * unit;
    m->heads = heads;
    m->kv_heads = base->kv_heads < base->heads ? base->kv_heads : heads;
    m->hidden = base->hidden * heads / base->heads;
    m->embed_dim = base->embed_dim * heads / base->heads;
    m->ffn = in_proportion(base->ffn, heads, base->heads);
    m->expert_ffn = in_proportion(base->expert_ffn, heads, base->heads);
    m->shared_ffn = in_proportion(base->shared_ffn, heads, base->heads);
}

/* ---- one candidate ---- */

static void set_key(struct candidates *c, enum setup_key key, uint64_t n)
{
    c->changed.v[key].n = n;
    c->changed.set[key] = true;
    c->changed.automatic[key] = false;
}

/* What a launch file says of a size that varies here is of another model, as was
 * asked for. */
static void forget_shape(struct candidates *c)
{
    static const enum shape_word sizes[] = { SHAPE_LAYERS,    SHAPE_HIDDEN,
                                             SHAPE_HEADS,     SHAPE_KV_HEADS,
                                             SHAPE_FFN,       SHAPE_EXPERT_FFN,
                                             SHAPE_SHARED_FFN };
    const size_t n = c->what == FIND_LAYERS   ? 1
                     : c->what == FIND_PARAMS ? sizeof sizes / sizeof sizes[0]
                                              : 0;
    for (size_t i = 0; i < n; i++)
        c->changed.shape[sizes[i]] = 0;
}

bool candidates_make(struct candidates *c, uint64_t index)
{
    const uint64_t value =
        c->list != NULL ? c->list[index] : (c->skipped + index + 1) * c->unit;
    arena_rewind(&c->arena);
    c->changed = *c->setup;
    c->changed.fill_pipeline = true;
    forget_shape(c);
    c->spec = c->model->spec;
    switch (c->what) {
    case FIND_MICRO_BATCH: set_key(c, KEY_MICRO_BATCH, value); break;
    case FIND_SEQ_LEN: set_key(c, KEY_SEQ_LEN, value); break;
    case FIND_GPUS: set_key(c, KEY_GPUS, value); break;
    case FIND_LAYERS: return set_layers(c, value);
    case FIND_PARAMS:
        if (!set_layers(c, value))
            return false;
        set_width(&c->spec, &c->model->spec);
        break;
    case FIND_COUNT: break;
    }
    return true;
}

uint64_t find_value(enum find_what what, const struct memplan_report *r)
{
    switch (what) {
    case FIND_MICRO_BATCH: return r->run.micro_batch;
    case FIND_SEQ_LEN: return r->run.seq_len;
    case FIND_GPUS: return r->run.gpus;
    case FIND_LAYERS: return r->spec.layers;
    case FIND_PARAMS: return r->params.total;
    case FIND_COUNT: break;
    }
    return 0;
}
