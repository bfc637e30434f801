/*
 * Counts parameters: the sum over weight tensors of the program, tied ones
 * once, before sharding and before vocabulary padding.
 */
#include "fold/fold.h"

#include "base/banned.h"

struct tally {
    struct count group[PG_COUNT];
    struct count trainable, buffers;
    struct count originals; /* of modules whose trained copies are in `group` */
    struct count copies;    /* in `group`, of another block's */
    struct count words_in, words_out; /* tables with a row for each word */
    bool head_is_table;               /* tied: products use the input's */
};

static void add_words(struct tally *t, const struct tensor *w, struct count n)
{
    if (w->tied || w->elsewhere)
        t->head_is_table |= w->group == PG_HEAD;
    else if (w->group == PG_HEAD)
        t->words_out = count_add(t->words_out, n);
    else
        t->words_in = count_add(t->words_in, n);
}

static void add_block(struct tally *t, const struct program *p,
                      const struct block *b, uint64_t times)
{
    const struct tensor *w;
    for (tensor_id id = b->weights; id != TENSOR_NONE; id = w->next) {
        w = &p->tensor[id];
        const struct count n = PROD(w->full_elems, times);
        if (w->role == ROLE_BUFFER) {
            t->buffers = count_add(t->buffers, n);
            continue;
        }
        if (w->original && !w->tied)
            t->originals = count_add(t->originals, n);
        if (w->original)
            continue;
        if (w->words)
            add_words(t, w, n);
        if (w->tied)
            continue;
        if (w->elsewhere)
            t->copies = count_add(t->copies, n);
        t->group[w->group] = count_add(t->group[w->group], n);
        if ((w->trainable && !w->dropped)
            || w->in_vain) /* as requires_grad says */
            t->trainable = count_add(t->trainable, n);
    }
}

/* The model's own parameters that one token uses: of E experts only k. This is
 * the N of 6ND, of tokens per parameter and of the laws, whatever PEFT adds: of
 * an original and its copies one computes, and adapters only change what the
 * frozen weights do. */
static uint64_t active_params(const struct params_result *r,
                              const struct tally *t, const struct spec *spec)
{
    const uint64_t added = r->group[PG_ADAPTER] + t->originals.v + t->copies.v;
    const uint64_t own = r->total - added;
    if (spec->experts == 0)
        return own;
    const uint64_t each = r->group[PG_EXPERT] / spec->experts;
    return own - each * (spec->experts - spec->experts_per_token);
}

/* How vendors publish it: OpenAI leaves out the table that is only looked up,
 * GLM that and the head's matrix, Qwen and Mixtral count everything. */
static void count_active(struct params_result *r, const struct tally *t,
                         const struct spec *spec)
{
    r->active = active_params(r, t, spec);
    r->active_without_input =
        r->active - (t->head_is_table ? 0 : t->words_in.v);
    r->active_without_words = r->active - t->words_in.v - t->words_out.v;
}

bool fold_params(struct params_result *out, const struct program *p,
                 const struct spec *spec)
{
    struct tally t = { 0 };
    for (uint32_t b = 0; b < p->n_blocks; b++)
        add_block(&t, p, &p->block[b], program_times(p, b));

    struct count total = count_of(0);
    *out = (struct params_result){ 0 };
    for (unsigned g = 0; g < PG_COUNT; g++) {
        out->group[g] = t.group[g].v;
        total = count_add(total, t.group[g]);
    }
    total = count_add(total, t.originals); /* as named_parameters() has them */
    out->total = total.v;
    out->trainable = t.trainable.v;
    out->frozen = out->total - out->trainable;
    out->buffers = t.buffers.v;
    out->expert = out->group[PG_EXPERT];
    out->embedding = out->group[PG_EMBED] + out->group[PG_POSITION];
    count_active(out, &t, spec);
    return !total.over && !t.buffers.over;
}
