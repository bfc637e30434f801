/*
 * When a layer's activations are on the host. Tensors that go one by one
 * (OffloadActivations) have gone when their layer, or the next one, is done, and
 * come back operation by operation: walk_away.c. Else Transformer Engine's order, as
 * Megatron has it by --cpu-offloading-num-layers. Of L layers the first n go;
 * layer i has left the GPU when layer L - n + i begins forward, and comes back
 * when layer L - n + i - 1 begins backward, so that L - n layers' are there. What
 * came back stays until the layer below begins backward, of the first layer
 * until all of backward is over. [cpu_offload.py at d0067d0d,
 * DefaultOffloadSynchronizer; docs/method.md eq. offload]
 */
#include "fold/stage.h"

#include "base/banned.h"

struct span stage_away_layers(const struct stage *s)
{
    const uint32_t first = s->embed ? 1 : 0;
    uint64_t n = 0;
    switch (s->away == NULL ? AWAY_NOTHING : run_away(s->run)) {
    case AWAY_NOTHING: break;
    case AWAY_LAYERS: n = s->run->away_layers; break;
    case AWAY_TENSORS: n = s->layers; break;
    case AWAY_MODULES: break;
    }
    return (struct span){ first, first + (uint32_t)n };
}

bool stage_unloads(const struct stage *s, uint32_t position)
{
    return s->away != NULL && run_away(s->run) == AWAY_TENSORS
           && s->p->block[stage_block(s, position)].kind == BLOCK_LAYER;
}

uint64_t stage_on_the_way(const struct stage *s, uint32_t position)
{
    return position > 0 && stage_unloads(s, position)
                   && stage_unloads(s, position - 1)
               ? s->walk[stage_block(s, position - 1)].away.left
               : 0;
}

bool stage_goes(const struct stage *s, uint32_t position)
{
    if (s->head && position == s->n - 1)
        return run_unloads_head(s->run);
    const struct span all = stage_away_layers(s);
    return position >= all.first && position < all.end
           && s->p->block[stage_block(s, position)].kind == BLOCK_LAYER;
}

struct span stage_gone(const struct stage *s, uint32_t position)
{
    const struct span all = stage_away_layers(s);
    const uint32_t stay = (uint32_t)s->layers - (all.end - all.first);
    uint32_t end = all.first;
    if (stay == 0) /* one by one: each when it is done */
        end = position > end ? position : end;
    else if (position + 1 > all.first + stay)
        end = position + 1 - stay;
    return (struct span){ all.first, end < all.end ? end : all.end };
}

struct span stage_back(const struct stage *s, uint32_t position)
{
    const struct span all = stage_away_layers(s);
    const uint32_t gone = stage_gone(s, position).end;
    uint32_t end = position < all.first ? all.first + 1 : position + 1;
    end = end < all.end ? end : all.end;
    if (all.end - all.first == s->layers) /* for their operation alone */
        end = gone;
    return (struct span){ gone < end ? gone : end, end };
}

void stage_away_init(struct stage *s, struct memory_fold *f)
{
    struct away_sums sum = { 0 };
    s->away = f->away;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct away *w = &s->walk[stage_block(s, i)].away;
        s->away[i] = sum;
        if (!stage_is_layer(s, i))
            continue;
        sum.bytes += w->bytes;
        sum.copies += w->copies;
    }
    s->away[s->n] = sum;
}

uint64_t stage_gone_bytes(const struct stage *s, uint32_t position)
{
    const struct span gone = stage_gone(s, position);
    return s->away[gone.end].bytes - s->away[gone.first].bytes;
}

uint64_t stage_back_bytes(const struct stage *s, uint32_t position)
{
    const struct span back = stage_back(s, position);
    uint64_t bytes = s->away[back.end].copies - s->away[back.first].copies;
    if (position < back.first) /* the first layer's own */
        bytes += s->away[back.end].bytes - s->away[back.first].bytes;
    return bytes;
}
