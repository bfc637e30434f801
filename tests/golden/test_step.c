/*
 * The walk against real autograd: for every golden file of tests/golden/oracle
 * the whole step without optimizer is put together from block walks, and its
 * peaks are compared with those that PyTorch had.
 */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fold/stage.h"
#include "spec/spec.h"
#include "json/json.h"

#include "recordings.h"

enum { TEXT_MAX = 1 << 16, FILES_MAX = 4096 };

static char text[TEXT_MAX];

static size_t read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("cannot open '%s'", path);
    const size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    return n;
}

static double num(const struct json *o, const char *key)
{
    const struct json *m = json_member(o, key);
    return m == NULL ? 0 : m->number;
}

static const char *word(const struct json *o, const char *key)
{
    const struct json *m = json_member(o, key);
    return m == NULL ? "" : m->text.p;
}

static void precision(struct run *r, const char *dtype)
{
    if (strcmp(dtype, "bf16") == 0) {
        r->prec.param = r->prec.compute = DT_BF16;
    } else if (strcmp(dtype, "fp16") == 0) {
        r->prec.param = r->prec.compute = DT_FP16;
    } else {
        r->prec.param = DT_FP32;
        r->prec.autocast = strcmp(dtype, "autocast") == 0;
        r->prec.compute = r->prec.autocast ? DT_BF16 : DT_FP32;
    }
    r->prec.grad = r->prec.reduce = r->prec.param;
    r->prec.master = DT_NONE;
}

static uint64_t targets_of(struct str name)
{
    static const struct {
        const char *name;
        uint64_t is;
    } words[] = {
        { "q_proj", UINT64_C(1) << LORA_Q },
        { "k_proj", UINT64_C(1) << LORA_K },
        { "o_proj", UINT64_C(1) << LORA_O },
        { "gate_proj", UINT64_C(1) << LORA_GATE },
        { "up_proj", UINT64_C(1) << LORA_UP },
        { "down_proj", UINT64_C(1) << LORA_DOWN },
        { "v_proj", UINT64_C(1) << LORA_V },
        { "c_attn", UINT64_C(1) << LORA_Q },
        { "W_pack", UINT64_C(1) << LORA_Q },
        { "c_proj", UINT64_C(1) << LORA_O },
        { "in_proj", UINT64_C(1) << LORA_IN_PROJ },
        { "in_proj_qkvz", UINT64_C(1) << LORA_IN_PROJ },
        { "in_proj_qkv", UINT64_C(1) << LORA_IN_PROJ },
        { "x_proj", UINT64_C(1) << LORA_X_PROJ },
        { "out_proj", UINT64_C(1) << LORA_OUT_PROJ },
        { "w1", UINT64_C(1) << LORA_UP },
        { "w2", UINT64_C(1) << LORA_GATE },
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (str_is(name, words[i].name))
            return words[i].is;
    return 0;
}

static uint64_t targets(const struct json *adapters)
{
    const struct json *list = json_member(adapters, "targets");
    uint64_t set = list->child == NULL ? UINT64_C(1) << LORA_ALL_LINEAR : 0;
    for (const struct json *t = list->child; t != NULL; t = t->next)
        set |= targets_of(t->text);
    return set;
}

/* Of a model without adapters the last layers alone, and what stands on them
 * where `ends`. */
static bool top_layers(struct run *r, const struct json *a, uint64_t layers)
{
    const struct json *top = json_member(a, "top");
    if (top == NULL)
        return false;
    r->frozen_layers = layers - (uint64_t)top->number;
    r->freeze = UINT64_C(1) << FREEZE_EMBED;
    if (!json_member(a, "ends")->truth)
        r->freeze |= UINT64_C(1) << FREEZE_NORM | UINT64_C(1) << FREEZE_HEAD;
    r->stops = true;
    return true;
}

static void some_layers(struct run *r, const struct json *a)
{
    const struct json *layers = json_member(a, "layers");
    const struct json *ranks = json_member(a, "ranks");
    r->some_layers = r->stops = layers != NULL;
    for (const struct json *i = layers ? layers->child : NULL; i; i = i->next)
        r->setup.layers[0] |= UINT64_C(1) << (unsigned)i->number;
    r->given[KEY_RANK_PATTERN] = ranks != NULL;
    for (const struct json *i = ranks ? ranks->child : NULL; i; i = i->next)
        for (unsigned k = 0; k < LORA_ALL_LINEAR; k++)
            if (targets_of(i->key) == UINT64_C(1) << k)
                r->setup.rank[k] = (uint32_t)i->number;
}

/* What peft has beside LoRA. */
static void other_method(struct run *r, const struct json *a)
{
    static const char *const name[] = {
#define PEFT_TEXT_OF(id, text) text,
        PEFT_TYPE_MAP(PEFT_TEXT_OF)
#undef PEFT_TEXT_OF
    };
    for (unsigned i = 0; i < PEFT_TYPE_COUNT; i++)
        if (strcmp(word(a, "peft_type"), name[i]) == 0)
            r->peft = (enum peft_type)i;
    const struct json *before = json_member(a, "feedforward");
    for (const struct json *t = before ? before->child : NULL; t; t = t->next)
        r->feedforward |= targets_of(t->text);
    r->virtual_tokens = (uint64_t)num(a, "virtual");
    r->encoder_hidden = (uint64_t)num(a, "encoder_hidden");
    r->prefix_projection = json_member(a, "projection") != NULL;
    r->stops = r->stops || run_prefixes(r);
    if (r->peft != PEFT_LORA && r->peft != PEFT_IA3)
        r->lora_targets = 0;
}

/* Adapters lie over weights in bf16 whatever autocast does. */
static void adapters(struct run *r, const struct json *root)
{
    const struct json *a = json_member(root, "adapters");
    if (a == NULL)
        return;
    if (top_layers(r, a, (uint64_t)num(root, "layers")))
        return;
    const char *base = word(a, "base");
    const bool fp32 = strcmp(word(a, "dtype"), "fp32") == 0;
    r->lora_rank = (uint64_t)num(a, "rank");
    r->lora_targets = targets(a);
    r->lora_dropout = num(a, "dropout");
    if (json_member(a, "dora") != NULL)
        r->lora_variant = LORA_VARIANT_DORA;
    r->lora_dtype = r->prec.param = fp32 ? DT_FP32 : r->prec.compute;
    r->base_dtype = strncmp(base, "nf4", 3) == 0 ? DT_NF4 : r->prec.compute;
    /* adapters.py calls prepare_model_for_kbit_training */
    if (fp32 && r->base_dtype == DT_NF4)
        r->kbit_cast = KBIT_CAST_ALL;
    some_layers(r, a);
    other_method(r, a);
    r->double_quant = strcmp(base, "nf4-double") == 0;
    const struct json *full = json_member(a, "full");
    if (full != NULL && strcmp(full->child->text.p, "projector") == 0)
        r->lora_full = UINT64_C(1) << LORA_FULL_PROJECTOR;
    else if (full != NULL)
        r->lora_full =
            UINT64_C(1) << LORA_FULL_EMBED | UINT64_C(1) << LORA_FULL_HEAD;
}

/* "freeze": parts of a whole whose weights have no gradients. */
static void freeze(struct run *r, const struct json *root)
{
    static const char *const parts[] = {
#define PART_TEXT_OF(id, text) text,
        FREEZE_MAP(PART_TEXT_OF)
#undef PART_TEXT_OF
    };
    const struct json *list = json_member(root, "freeze");
    for (const struct json *t = list ? list->child : NULL; t; t = t->next)
        for (size_t i = 0; i < FREEZE_COUNT; i++)
            if (strcmp(t->text.p, parts[i]) == 0)
                r->freeze |= UINT64_C(1) << i;
    r->stops = r->stops || r->freeze != 0;
}

struct step {
    struct arena arena;
    struct program p;
    struct run run;
    struct memory_fold fold;
    struct stage stage; /* for what holds beside walks */
    const struct block_walk *walk;
    uint64_t shared;      /* what the layers share */
    uint64_t shared_kept; /* of it, what backward needs */
    uint64_t shared_late; /* ... and what variables hold to the loss's end */
    bool words;           /* the head's last product makes words */
};

static bool is_kept(const struct program *p, tensor_id id)
{
    for (uint32_t k = 0; k < p->n_ops; k++) {
        tensor_id saved[SAVED_MAX];
        const size_t n = op_saves(p, &p->op[k], saved);
        for (size_t i = 0; i < n; i++)
            if (p->tensor[saved[i]].storage == id)
                return true;
    }
    return false;
}

/* Images of another size than the file's, or the class's; `eye`: where a whole
 * has its vision part. */
static void look_at(struct spec *spec, struct spec *eye,
                    const struct json *root, struct diag *d)
{
    const struct json *sides = json_member(root, "image");
    uint16_t image[3];
    size_t n = 0;
    if (sides == NULL)
        return;
    for (const struct json *at = sides->child; at && n < 3; at = at->next)
        image[n++] = (uint16_t)at->number;
    assert_int_equal(n, 3);
    if (spec->vision == NULL) {
        assert_int_equal(spec_set_image(spec, image, d), MEMPLAN_OK);
        return;
    }
    *eye = *spec->vision;
    assert_int_equal(spec_set_whole_image(spec, eye, image, d), MEMPLAN_OK);
}

/* Everything to the byte: no allocator is behind the recordings. */
static void walk_bytes(struct step *s)
{
    struct memory_fold *f = &s->fold;
    assert_true(memory_fold_init(f, &s->p, &s->run, &s->arena));
    f->scratch.granule = 1;
    f->scratch.bare = true;
    for (uint32_t b = 0; b < s->p.n_blocks; b++)
        walk_block(&f->walk[b], &s->p, &s->p.block[b], 0, 1u << WGRAD_KEEP,
                   &f->scratch);
    stage_init(&s->stage, f, 0, 0);
    s->walk = f->walk;
}

static bool lower(struct step *s, const struct json *root, size_t len,
                  const char *file)
{
    struct diag d;
    memplan_error slot[2];
    memplan_errors errs = { slot, 2, 0 };
    diag_init(&d, &errs);
    struct spec spec, eye;
    const struct spec_text in = { .root = json_member(root, "config"),
                                  .text = text,
                                  .len = len };
    if (spec_import(&spec, &in, &s->arena, &d) != MEMPLAN_OK)
        fail_msg("%s", slot[0].message);
    if (json_member(root, "part") != NULL)
        spec = *spec.parts->part[part_find(word(root, "part"))];
    look_at(&spec, &eye, root, &d);
    s->words = spec.head == HEAD_LM || spec.head == HEAD_MASKED_LM;
    struct run *run = &s->run;
    run_bare(run, &spec);
    run->framework = FW_DEEPSPEED; /* no Trainer around it */
    run->micro_batch = (uint64_t)num(root, "b");
    run->seq_len = (uint64_t)num(root, "s");
    const char *at = word(root, "attention");
    run->attention = strcmp(at, "eager") == 0  ? ATTN_EAGER
                     : strcmp(at, "sdpa") == 0 ? ATTN_SDPA
                                               : ATTN_FLASH;
    precision(run, word(root, "dtype"));
    const bool drops = strstr(file, "-0.json") == NULL;
    run->hidden_dropout = drops ? spec.hidden_dropout : 0;
    adapters(run, root);
    freeze(run, root);
    if (json_member(root, "images") != NULL)
        run->images = (uint64_t)num(root, "images");
    run->embed_dropout = drops ? spec.embed_dropout : 0;
    run->attention_dropout = drops ? spec.attention_dropout : 0;
    run->head_dropout = drops ? spec.head_dropout : 0;
    run->act_dropout = drops ? spec.act_dropout : 0;
    if (json_member(root, "padded") != NULL)
        run->mask = MASK_PADDING;
    run->mask_per_head = json_member(root, "mask_per_head") != NULL;
    if (strcmp(word(root, "ssm_kernel"), "torch") == 0)
        run->ssm_kernel = SSM_KERNEL_TORCH;
    if (json_member(root, "decoder_s") != NULL)
        run->decoder_seq_len = (uint64_t)num(root, "decoder_s");
    if (lower_model(&s->p, &spec, run, &s->arena, &d) != MEMPLAN_OK) {
        printf("not lowered: %s\n", slot[0].message);
        return false;
    }
    walk_bytes(s);
    for (tensor_id id = 0; id < s->p.n_tensors; id++) {
        const struct tensor *t = &s->p.tensor[id];
        if (t->storage != id || t->role != ROLE_SHARED)
            continue;
        s->shared += t->bytes;
        s->shared_kept += is_kept(&s->p, id) ? t->bytes : 0;
        s->shared_late += is_kept(&s->p, id) || t->held ? t->bytes : 0;
    }
    return true;
}

struct peaks {
    uint64_t forward, head, pooled, norm, layers, embedding, saved;
};

static uint32_t block_at(const struct step *s, uint64_t i)
{
    if (i == 0)
        return s->p.embed;
    return i == s->p.layers + 1 ? s->p.head : s->p.layer_block[i - 1];
}

/* Final norm and its like: what the head block does before its last product.
 * PyTorch's phases count them with the layers. */
static uint64_t norm_backward(struct step *s)
{
    struct block b = s->p.block[s->p.head];
    uint32_t last = 0;
    for (uint32_t k = 0; k < b.op_count; k++)
        if (s->p.op[b.op_first + k].kind == OP_LINEAR)
            last = k;
    if (last == 0)
        return 0;
    const struct op *product = &s->p.op[b.op_first + last];
    b.op_count = last;
    b.output = s->p.tensor[product->in[0]].storage;
    struct block_walk w;
    walk_block(&w, &s->p, &b, 0, 1u << WGRAD_KEEP, &s->fold.scratch);
    uint64_t wgrad = 0;
    for (unsigned i = 1; i < product->n_in; i++)
        if (s->p.tensor[product->in[i]].trainable)
            wgrad += s->p.tensor[product->in[i]].bytes;
    for (uint32_t i = 0; wgrad == 0 && i < b.tensor_count; i++) {
        const struct tensor *t = &s->p.tensor[b.tensor_first + i];
        if (t->role == ROLE_PARAM && t->trainable && t->matmul)
            wgrad = t->bytes; /* of a weight that is normed first */
    }
    return extremum_total(&w.backward[WGRAD_KEEP]) + wgrad;
}

/* DistilBERT's head of sequences takes the first token's state before its first
 * module (BERT's pooler does it itself): what gives all states a gradient lies
 * below the input that ends PyTorch's phase, and counts with the layers. */
static uint64_t above_first_token(struct step *s)
{
    struct block b = s->p.block[s->p.head];
    const struct op *op = &s->p.op[b.op_first];
    if (op->kind != OP_VIEW || op->n_out != 1
        || s->p.tensor[op->out[0]].elems == s->p.tensor[op->in[0]].elems)
        return 0;
    b.op_first++;
    b.op_count--;
    struct block_walk w;
    walk_block(&w, &s->p, &b, 0, 1u << WGRAD_KEEP, &s->fold.scratch);
    return extremum_total(&w.backward[WGRAD_KEEP]);
}

/* The head's gradient of the embedding's tensor: their sum is a new one. */
static uint64_t tied(const struct step *s)
{
    const struct block *b = &s->p.block[s->p.head];
    if (stage_ties_cast(&s->p) || s->stage.tied_sum) /* added in place */
        return 0;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &s->p.tensor[b->tensor_first + i];
        if (t->role == ROLE_PARAM && t->tied)
            return t->bytes;
    }
    return 0;
}

/* Whether the first layer's input has a gradient: of a frozen part nothing. */
static bool starts(const struct step *s)
{
    return s->p.tensor[s->p.block[s->p.layer_block[0]].input].needs_grad;
}

/* Whether the table that others share hands a gradient on: not to a frozen
 * vision part. */
static bool joined(const struct step *s)
{
    const struct block *b = &s->p.block[s->p.words];
    return b->input != TENSOR_NONE && s->p.tensor[b->input].needs_grad;
}

/* The output of a frozen embedding, which got requires_grad_(). */
static uint64_t leaf(const struct step *s)
{
    const struct tensor *t = &s->p.tensor[s->p.block[s->p.embed].output];
    const struct block_walk *first = &s->walk[s->p.layer_block[0]];
    return t->needs_grad || !starts(s) || first->keeps_input ? 0 : t->bytes;
}

/* Gradients of what two blocks have: the upper one's wait for the lower's. */
static uint64_t waiting(const struct step *s)
{
    uint64_t sum = 0;
    for (tensor_id id = 0; id < s->p.n_tensors; id++)
        sum += s->p.tensor[id].waits ? s->p.tensor[id].bytes : 0;
    return sum;
}

/* What one of two stacks alone had, where backward is at the other. */
static uint64_t gone(const struct step *s, uint64_t i)
{
    return s->p.n_spans == 0 ? 0
                             : s->stage.shared_kept
                                   - stage_shared_back(&s->stage, (uint32_t)i);
}

/* Qwen's tables of cos and sin outlive the step. */
static void put_together(struct step *s, uint64_t cache, struct peaks *out)
{
    const uint64_t n = s->p.layers + 2;
    uint64_t kept = s->shared_kept + leaf(s), wgrad = 0, lingers = 0;
    const uint64_t masks = s->shared - s->shared_kept;
    const uint64_t late = s->shared_late - s->shared_kept;
    const struct tensor *hidden = &s->p.tensor[s->p.block[s->p.embed].output];
    *out = (struct peaks){ 0 };
    for (uint64_t i = 0; i < n; i++) {
        const struct block_walk *w = &s->walk[block_at(s, i)];
        const uint64_t held = kept + lingers;
        if (w->returns)
            out->forward =
                max_u64(out->forward, held + extremum_total(&w->inside) + masks
                                          + stage_frames_inside(&s->stage));
        out->forward =
            max_u64(out->forward,
                    held + extremum_total(w->returns ? &w->after : &w->forward)
                        + stage_frames(&s->stage, (uint32_t)i)
                        + (i < n - 1 ? masks : late));
        kept += w->kept;
        lingers += w->lingers;
    }
    out->saved = kept - leaf(s);
    for (uint64_t i = n; i-- > 0;) {
        const struct block_walk *w = &s->walk[block_at(s, i)];
        kept -= w->kept;
        const uint64_t here = kept + wgrad
                              + extremum_total(&w->backward[WGRAD_KEEP])
                              + stage_far_gradients(&s->stage, (uint32_t)i)
                              - (i > 0 ? gone(s, i) : 0);
        if (i == n - 1) {
            out->head = here;
            out->norm = kept + norm_backward(s);
            out->pooled = above_first_token(s);
            out->pooled += out->pooled != 0 ? kept : 0;
        } else if (i == 0) {
            const uint64_t layers = s->shared_kept - cache; /* with layer 0's */
            out->embedding =
                max_u64(here, kept + wgrad + w->wgrad
                                  + (s->p.words == s->p.embed ? tied(s) : 0))
                - layers;
            if (!hidden->needs_grad
                && starts(s)) /* the leaf and its gradient */
                out->embedding = cache + wgrad + 2 * hidden->bytes;
        } else {
            out->layers = max_u64(out->layers, here);
            if (block_at(s, i) == s->p.words)
                out->layers =
                    max_u64(out->layers, kept + wgrad + w->wgrad + tied(s)
                                             + (joined(s) ? w->input : 0));
        }
        wgrad += w->wgrad;
        if (i == s->stage.waits_to) /* its own is another's too */
            wgrad -= waiting(s);
    }
}

static double phase_peak(const struct json *root, const char *phase)
{
    return num(json_member(json_member(root, "phases"), phase), "peak");
}

/* No file is excepted. */
static const double tolerance = 0.005;

static struct recording *now; /* of the file that is compared */

static bool differs(const char *file, const char *what, double got, double want)
{
    const double e = want == 0 ? 0 : got / want - 1;
    if (fabs(e) > now->peak_apart)
        now->peak_apart = fabs(e);
    if (e < tolerance && e > -tolerance)
        return false;
    printf("%s: %s %.0f, measured %.0f (%+.2f %%)\n", file, what, got, want,
           100 * e);
    return true;
}

/* Bytes of weights: adapters, scales of quantised ones, originals of modules
 * trained in full. */
static uint64_t weights(const struct step *s)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < s->p.layers + 2; i++) {
        const struct block *b = &s->p.block[block_at(s, i)];
        for (uint32_t k = 0; k < b->tensor_count; k++) {
            const struct tensor *t = &s->p.tensor[b->tensor_first + k];
            if (t->role == ROLE_PARAM && !t->tied)
                sum += t->bytes;
        }
    }
    return sum;
}

/* Parameters that PyTorch would train: those in vain too. */
static uint64_t trained(const struct step *s)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < s->p.layers + 2; i++) {
        const struct block *b = &s->p.block[block_at(s, i)];
        for (uint32_t k = 0; k < b->tensor_count; k++) {
            const struct tensor *t = &s->p.tensor[b->tensor_first + k];
            if (t->role == ROLE_PARAM && !t->tied
                && (t->trainable || t->in_vain))
                sum += t->elems;
        }
    }
    return sum;
}

static bool differs_at_all(const char *file, const char *what, uint64_t got,
                           double want)
{
    if ((double)got == want)
        return false;
    printf("%s: %s %llu, measured %.0f\n", file, what, (unsigned long long)got,
           want);
    return true;
}

/* The model makes them, and the recordings of layers count what it made; here
 * they are an input. */
static uint64_t places(const struct step *s, const struct json *root)
{
    if (json_member(root, "layer") == NULL)
        return 0;
    for (tensor_id id = 0; id < s->p.n_tensors; id++) {
        const struct tensor *t = &s->p.tensor[id];
        if (t->role == ROLE_INPUT && strcmp(t->name, "position_ids") == 0
            && is_kept(&s->p, id))
            return t->bytes;
    }
    return 0;
}

static bool compare(const char *path, const char *file)
{
    struct step s = { .shared = 0 };
    arena_init(&s.arena, NULL);
    const size_t len = read_file(path);
    struct diag d;
    diag_init(&d, NULL);
    const struct json *root = json_parse(&s.arena, text, len, &d);
    assert_non_null(root);
    bool bad = false;
    if (lower(&s, root, len, file)) {
        struct peaks p;
        const bool qwen = strcmp(word(root, "family"), "qwen") == 0;
        put_together(&s, qwen ? s.shared : 0, &p);
        now = recording_of(word(root, "family"));
        now->files++;
        now->kept_apart += (double)(p.saved + places(&s, root))
                           != num(root, "saved_total_bytes");
        const double base = num(root, "parameter_bytes")
                            + num(root, "buffer_bytes")
                            + (json_member(root, "input_bytes") != NULL
                                   ? num(root, "input_bytes")
                                   : 8 * num(root, "b") * num(root, "s"));
        const double fwd = phase_peak(root, "forward");
        const double loss = phase_peak(root, "loss");
        if (json_member(root, "layer") == NULL) { /* not for test_hf.c */
            bad = differs_at_all(file, "saved", p.saved,
                                 num(root, "saved_total_bytes"));
            bad = differs_at_all(file, "weights", weights(&s),
                                 num(root, "parameter_bytes"))
                  || bad;
            if (json_member(root, "trainable") != NULL)
                bad = differs_at_all(file, "trainable", trained(&s),
                                     num(root, "trainable"))
                      || bad;
        }
        bad = differs(file, "forward", base + (double)p.forward,
                      fwd > loss ? fwd : loss)
              || bad;
        if (json_member(json_member(root, "phases"), "backward") != NULL) {
            const uint64_t ends = max_u64(p.head, p.embedding);
            bad = differs(file, "backward",
                          base + (double)max_u64(ends, p.layers),
                          phase_peak(root, "backward"))
                  || bad;
            arena_release(&s.arena);
            return bad;
        }
        const double layers = phase_peak(root, "backward_layers");
        const double norm = phase_peak(root, "backward_norm");
        double head = phase_peak(root, "backward_head");
        if (norm == 0) { /* what lies before the product counts with them */
            p.layers = p.head = max_u64(p.head, p.layers);
            head = head > layers ? head : layers;
        } else if (strcmp(word(json_member(root, "config"), "model_type"),
                          "distilbert")
                       == 0
                   && p.pooled != 0) {
            p.layers = max_u64(p.head, p.layers);
            p.head = p.pooled;
        }
        bad = differs(file, "head", base + (double)p.head,
                      head > norm ? head : norm)
              || bad;
        /* under autocast the phase has the cast of the head's gradient */
        if (strcmp(word(root, "dtype"), "autocast") != 0 && s.words)
            bad = differs(file, "norm", base + (double)p.norm,
                          phase_peak(root, "backward_norm"))
                  || bad;
        bad = differs(file, "embedding", base + (double)p.embedding,
                      phase_peak(root, "backward_embedding"))
              || bad;
        bad = differs(file, "layers", base + (double)p.layers,
                      norm == 0 && head > layers ? head : layers)
              || bad;
    }
    arena_release(&s.arena);
    return bad;
}

static void test_step(void **state)
{
    (void)state;
    DIR *dir = opendir(MEMPLAN_GOLDEN_DIR);
    assert_non_null(dir);
    unsigned files = 0, bad = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (strstr(e->d_name, ".json") == NULL)
            continue;
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", MEMPLAN_GOLDEN_DIR, e->d_name);
        files++;
        bad += compare(path, e->d_name);
    }
    closedir(dir);
    printf("%u of %u golden files as measured\n", files - bad, files);
    assert_true(files > 0);
    assert_int_equal(bad, 0);
    assert_true(page_is_current());
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_step) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
