/*
 * What FSDP has gathered at a moment: the root's and a unit's parameters, the
 * next unit's on their way, and the all-gather's output that version 2 copies
 * them out of. Facts from PyTorch 2.x, FSDP1 and fully_shard.
 * [docs/method.md eq. gather]
 */
#include "fold/engine_fsdp.h"

#include "base/banned.h"

/* Version 1 leaves them whole where it does not reduce (_runtime_utils.py,
 * _should_free_in_backward). */
static bool stays_whole(const struct stage *s, bool back, bool later)
{
    if (fsdp_reduces_at_last(s->run))
        return back || later;
    if (s->run->engine != ENGINE_FSDP || !fsdp_defers(s->run))
        return false;
    return back ? !fsdp_reduces_now(s->run, later) : later;
}

/* SHARD_GRAD_OP, reshard_after_forward=False: whole from forward to backward,
 * of the positions before `end`. */
static void fsdp_whole(struct put *p, const struct stage *s, uint32_t position,
                       uint32_t end)
{
    const uint64_t upto = s->before[end].bytes;
    uint64_t bytes = upto;
    if (end < s->n && fsdp_head_waits(s, position))
        bytes += s->states[s->p->head].bytes; /* the root's other parts */
    if (fsdp_root_joint(s) != NULL && end <= s->joint)
        bytes += fsdp_root_joint(s)->bytes - fsdp_root_joint(s)->apart_bytes;
    PUT(p, TERM_GATHERED, "parameters gathered so far", F("bytes", bytes));
}

/* Cut after forward, not after backward: the positions from this one on. */
static void fsdp_whole_above(struct put *p, const struct stage *s,
                             uint32_t position)
{
    uint64_t bytes = s->before[s->n].bytes - s->before[position].bytes;
    if (s->embed && position > 0 && !fsdp_embed_apart(s))
        bytes += s->states[s->p->embed].bytes;
    PUT(p, TERM_GATHERED, "parameters that backwards leave whole",
        F("bytes", bytes));
}

/* Of the model's forward, which hooks are around: transformers computes the
 * loss in it, LitGPT does not. */
static bool loss_is_outside(const struct stage *s)
{
    return s->run->impl == IMPL_TORCHTITAN || s->run->impl == IMPL_TORCHTUNE
           || run_is_litgpt(s->run);
}

/* Version 2's output of the latest all-gather: of the unit at a position, of the
 * one before where that is none, of the root, which comes first. */
static uint64_t gather_output(const struct stage *s, uint32_t position)
{
    for (uint32_t i = position + 1; i-- > 0;)
        if (fsdp_is_unit(s, i))
            return fsdp_unit_bytes(s, i);
    return fsdp_root_bytes(s);
}

/* It is kept to the end of the next copy-out, where a local variable has it
 * still; the last unit's to the end of the model's forward
 * (_fsdp_param_group.py, wait_for_unshard: prev_all_gather_state;
 * _fsdp_state.py, _post_forward). */
static void put_gather_output(struct put *p, const struct stage *s,
                              uint32_t position)
{
    const bool head = s->head && position + 1 == s->n;
    if (p->copies_out)
        PUT(p, TERM_PREFETCHED, "all-gather output that is copied out",
            F("bytes", fsdp_unit_bytes(s, position)));
    else if (head && loss_is_outside(s))
        return;
    PUT(p, TERM_PREFETCHED, "all-gather output, kept to the next copy-out",
        F("bytes", !p->copies_out ? gather_output(s, position)
                   : position > 0 ? gather_output(s, position - 1)
                                  : fsdp_root_bytes(s)));
}

bool fsdp_copies_out(const struct stage *s, uint32_t position, bool later)
{
    const struct run *run = s->run;
    return run->engine == ENGINE_FSDP2 && run->zero != 0
           && fsdp_is_unit(s, position)
           && !(later && fsdp_reduces_at_last(run));
}

/* In backward too: of a unit that is more than what it fetches ahead then, else
 * that is as much. Padding makes it so, and layers of two kinds. */
bool fsdp_copies_back(const struct stage *s, uint32_t position)
{
    const struct run *run = s->run;
    const bool ahead = position > 0 && fsdp_is_unit(s, position - 1)
                       && fsdp_is_fetched_back(s, position - 1);
    return run->engine == ENGINE_FSDP2 && run->zero != 0 && run->reshard
           && run->pp == 1 && position + 1 < s->n && s->group == 1
           && fsdp_is_unit(s, position)
           && fsdp_unit_bytes(s, position)
                  > (ahead ? fsdp_unit_bytes(s, position - 1) : 0);
}

/* FSDP1 gathers from a copy of the shard on the GPU, gone with the gather. */
static void shard_on_its_way(struct put *p, const struct stage *s,
                             uint64_t whole)
{
    if (engine_shards_offloaded(s->run) && s->run->engine == ENGINE_FSDP)
        PUT(p, TERM_PREFETCHED, "its shard, on the way from the CPU",
            F("bytes", div_up(whole, s->run->shard)));
}

void fsdp_forward(struct put *p, const struct stage *s, uint32_t position,
                  bool later)
{
    const bool there = later && fsdp_reduces_at_last(s->run);
    if (s->run->engine == ENGINE_FSDP2 && !there)
        put_gather_output(p, s, position);
    if (!s->run->reshard) {
        fsdp_whole(p, s, position,
                   stays_whole(s, false, later) ? s->n : position + 1);
        return;
    }
    if (there) {
        fsdp_whole_above(p, s, position);
        return;
    }
    PUT(p, TERM_GATHERED, ROOT_LABEL, F("bytes", fsdp_root_bytes(s)));
    PUT(p, TERM_GATHERED, UNIT_LABEL, F("bytes", fsdp_unit_bytes(s, position)));
    shard_on_its_way(p, s, fsdp_unit_bytes(s, position));
}

/* A unit prefetches when the gradient of its result is there. The root's are
 * the logits where the loss is computed outside: after the loss, as the head's
 * are (_runtime_utils.py, _register_pre_backward_hooks; _fsdp_state.py,
 * _register_pre_backward_hook). */
static bool prefetches(const struct stage *s, uint32_t position, bool later)
{
    const bool head = s->head && position + 1 == s->n;
    const bool after_loss = loss_is_outside(s) || fsdp_head_apart(s);
    /* adapters, units of their own, come first: the layer before is fetched by
       the first of them, at the end (peft/utils/other.py,
       fsdp_auto_wrap_policy) */
    const bool adapters = s->run->engine == ENGINE_FSDP && s->run->lora_rank > 0
                          && !head
                          && s->states[stage_block(s, position)].elems > 0;
    return position > 0 && !adapters
           && (!head || !after_loss
               || engine_gradients_begun(s, position, later));
}

/* Of `own`: while the unit itself is whole. */
void fsdp_gathered_back(struct put *p, const struct stage *s, uint32_t position,
                        bool later, bool own)
{
    if (!s->run->reshard) {
        fsdp_whole(p, s, position,
                   stays_whole(s, true, later) ? fsdp_waits_before(s, position)
                   : own                       ? position + 1
                                               : position);
        return;
    }
    if (fsdp_reduces_at_last(s->run)) {
        fsdp_whole_above(p, s, position);
    } else {
        PUT(p, TERM_GATHERED, ROOT_LABEL, F("bytes", fsdp_root_bytes(s)));
        PUT(p, TERM_GATHERED, UNIT_LABEL,
            F("bytes", own ? fsdp_unit_bytes(s, position) : 0));
    }
}

/* A layer that runs forward and not backward: the unit above fetches it ahead,
 * and it stays to the end of the pass (_runtime_utils.py,
 * _post_backward_final_callback; _fsdp_param_group.py, finalize_backward); a
 * frozen one until its input's gradient is there. */
void fsdp_put_in_vain(struct put *p, const struct stage *s, uint32_t position)
{
    const struct block_states *joint = fsdp_root_joint(s);
    const bool frozen = (s->run->freeze >> FREEZE_VISION & 1) != 0
                        && s->run->engine == ENGINE_FSDP;
    if (joint != NULL && s->run->reshard && position <= s->joint + 1
        && (!frozen || position >= s->joint))
        PUT(p, TERM_PREFETCHED, "an unused layer's, prefetched in vain",
            F("bytes", joint->apart_bytes));
}

void fsdp_put_prefetched(struct put *p, const struct stage *s,
                         uint32_t position)
{
    const struct block_states *joint = fsdp_root_joint(s);
    if (!s->run->reshard || position == 0
        || !fsdp_is_fetched_back(s, position - 1)
        || (joint != NULL && joint->apart_bytes > 0 && position == s->joint))
        return;
    PUT(p, TERM_PREFETCHED, "the unit's before it, prefetched",
        F("bytes", fsdp_unit_bytes(s, position - 1)));
    shard_on_its_way(p, s, fsdp_unit_bytes(s, position - 1));
}

void fsdp_backward(struct put *p, const struct stage *s, uint32_t position,
                   bool later)
{
    const struct run *run = s->run;
    fsdp_gathered_back(p, s, position, later, true);
    fsdp_put_in_vain(p, s, position);
    if (p->copies_out)
        PUT(p, TERM_PREFETCHED, "the unit's before it, prefetched",
            F("bytes", fsdp_unit_bytes(s, position)));
    else if (prefetches(s, position, later))
        fsdp_put_prefetched(p, s, position);
    if (fsdp_defers(run) && !fsdp_reduces_now(run, later))
        return;
    if (run->engine == ENGINE_FSDP2 && position + 1 < s->n
        && fsdp_is_unit(s, position + 1)) {
        const struct block_states *next =
            &s->states[stage_block(s, position + 1)];
        fsdp_put_scatter(p, s, next->cut_elems);
    }
}
