/*
 * Inputs of checkpointed layers that leave the GPU: which of them are there all
 * the same, on their way to the host or to a disk, or back from it twice.
 * [docs/method.md eq. offload]
 */
#include "fold/engine_private.h"

#include "base/count.h"
#include "data/constants.h"

#include "base/banned.h"

static bool on_disk(const struct stage *s)
{
    return s->run->offload_activations == OFFLOAD_NVME;
}

/* The latest of those of the layers before. */
static void put_latest(struct put *p, const struct stage *s, uint32_t position,
                       const char *what, uint64_t most)
{
    const uint32_t first = s->embed ? 1 : 0;
    const uint64_t passed = position > first ? position - first : 0;
    PUT(p, TERM_CHECKPOINTS, what,
        F("checkpoints", min_u64(min_u64(passed, s->recomputed), most)),
        F("bytes", s->walk[stage_block(s, first)].input));
}

/* Of the tensors that may be unwritten a layer's own input is one. The GPU is
 * behind the CPU, and a copy waits for what was launched before it: forward
 * waits for files, not for layers (save_tensor, _save_tensor_to_disk). */
static void put_unwritten(struct put *p, const struct stage *s,
                          uint32_t position)
{
    const uint64_t own = stage_recomputed(s, position) ? 1 : 0;
    put_latest(p, s, position, "checkpoints not yet written to the disk",
               DISCO_UNWRITTEN - own);
}

/* torchtune lets go of the latest tensors when their copies must have arrived
 * (torchtune/training/_activation_offloading.py, max_fwd_stash_size). */
void engine_checkpoints_leave(struct put *p, const struct stage *s,
                              uint32_t position)
{
    if (!stage_offloads(s) || s->layers == 0 || run_checkpoints_in_cpu(s->run))
        return;
    if (on_disk(s))
        put_unwritten(p, s, position);
    else
        put_latest(p, s, position, "checkpoints on their way to the CPU",
                   TRL_OFFLOAD_STASH);
}

/* The first layer's backward waits for its file. What is read ahead of a
 * layer's is the latest file there, which is its own still, and stays until
 * its backward is over (trigger_prefetch, load_tensor, cleanup_tensor). */
void engine_checkpoints_return(struct put *p, const struct stage *s,
                               uint32_t position)
{
    if (!on_disk(s) || s->layers == 0)
        return;
    if (s->head && position == s->n - 1)
        put_unwritten(p, s, position);
    if (!stage_recomputed(s, position))
        return;
    const uint32_t first = stage_group_first(s, position);
    PUT(p, TERM_CHECKPOINTS, "input of this checkpoint, read twice",
        F("bytes", s->walk[stage_block(s, first)].input));
}
