/*
 * The walks of a block told event by event, each way and variant of it: what a
 * trace is written from. Owns no rule; the sums of walk_block() are of the same.
 */
#include "fold/walk_private.h"

#include "base/banned.h"

static void told(struct walk *w, const struct walk_scratch *scratch,
                 walk_event_fn *tell, void *ctx)
{
    struct away sum;
    walk_init(w);
    if (walk_how(scratch, w->b) != AWAY_NOTHING)
        walk_find_away(w, &sum, walk_how(scratch, w->b));
    w->tell = tell;
    w->ctx = ctx;
}

void walk_tell_forward(const struct program *p, const struct block *block,
                       uint64_t regions, enum walk_pass pass,
                       struct walk_scratch *scratch, walk_event_fn *tell,
                       void *ctx)
{
    struct walk w = walk_on(p, block, regions, scratch);
    told(&w, scratch, tell, ctx);
    walk_forward(&w, pass);
}

void walk_tell_backward(const struct program *p, const struct block *block,
                        uint64_t regions, enum wgrad_mode mode,
                        struct walk_scratch *scratch, walk_event_fn *tell,
                        void *ctx)
{
    struct walk w = walk_on(p, block, regions, scratch);
    told(&w, scratch, tell, ctx);
    walk_backward(&w, mode);
}

void walk_tell_unpacked(const struct program *p, const struct block *block,
                        uint64_t regions, enum wgrad_mode mode,
                        struct walk_scratch *scratch, walk_event_fn *tell,
                        void *ctx)
{
    struct walk w = walk_on(p, block, regions, scratch);
    told(&w, scratch, tell, ctx);
    w.unpacks = true;
    walk_backward(&w, mode);
}

void walk_tell_reloaded(const struct program *p, const struct block *block,
                        uint64_t regions, enum wgrad_mode mode,
                        struct walk_scratch *scratch, walk_event_fn *tell,
                        void *ctx)
{
    struct walk w = walk_on(p, block, regions, scratch);
    told(&w, scratch, tell, ctx);
    w.reloads = walk_how(scratch, block) == AWAY_LAYERS;
    w.unloads = walk_how(scratch, block) == AWAY_TENSORS;
    walk_backward(&w, mode);
}

void walk_tell_away(const struct program *p, const struct block *block,
                    uint64_t regions, struct walk_scratch *scratch,
                    walk_event_fn *tell, void *ctx)
{
    struct walk w = walk_on(p, block, regions, scratch);
    told(&w, scratch, tell, ctx);
    w.unloads = true;
    walk_forward(&w, PASS_KEEP);
}

void walk_tell_split(const struct program *p, const struct block *block,
                     uint64_t regions, enum wgrad_mode mode,
                     struct walk_scratch *scratch, walk_event_fn *tell,
                     void *ctx)
{
    struct walk w = walk_on(p, block, regions, scratch);
    told(&w, scratch, tell, ctx);
    w.split = true;
    walk_backward(&w, mode);
}

void walk_tell_weights(const struct program *p, const struct block *block,
                       uint64_t regions, enum wgrad_mode mode,
                       struct walk_scratch *scratch, walk_event_fn *tell,
                       void *ctx)
{
    struct walk w = walk_on(p, block, regions, scratch);
    walk_init(&w);
    w.split = true;
    walk_backward(&w, mode);
    walk_input_handed(&w);
    w.tell = tell;
    w.ctx = ctx;
    walk_weights(&w);
}
