/*
 * What variables of the model's forward hold, block by block, and the gradients
 * of what is handed past blocks. [docs/method.md eq. peak]
 */
#include "fold/stage.h"

#include "base/banned.h"

static bool keeps(const struct program *p, const struct op *op, tensor_id id)
{
    tensor_id saved[SAVED_MAX];
    const size_t n = op_saves(p, op, saved);
    for (size_t i = 0; i < n; i++)
        if (p->tensor[saved[i]].storage == id)
            return true;
    return false;
}

/* What the words' module hands out, where that is a leaf and not the layers'
 * input, and no operation keeps it. */
static uint64_t leaf_below(const struct stage *s)
{
    const struct program *p = s->p;
    const struct block *b = &p->block[p->embed];
    tensor_id leaf = TENSOR_NONE;
    for (uint32_t i = b->op_first; i < b->op_first + b->op_count; i++) {
        const struct op *op = &p->op[i];
        if (op->n_out > 0 && p->tensor[op->out[0]].leaf)
            leaf = op->out[0];
        else if (leaf != TENSOR_NONE && keeps(p, op, leaf))
            return 0;
    }
    return leaf == TENSOR_NONE ? 0 : round_alloc(p->tensor[leaf].bytes);
}

uint64_t stage_held_input(const struct stage *s)
{
    const struct block *embed = &s->p->block[s->p->embed];
    const uint32_t first = s->embed ? 1 : 0;
    if (s->embed && s->layers > 0 && leaf_below(s) > 0)
        return leaf_below(s);
    if (s->embed && (s->layers == 0 || s->p->tensor[embed->output].needs_grad))
        return 0;
    const struct block_walk *w = &s->walk[stage_block(s, first)];
    const tensor_id input = s->p->block[stage_block(s, first)].input;
    if ((s->embed && !s->p->tensor[input].needs_grad)
        || s->run->graph_step == STEP_CAPTURE) /* graphs have their own */
        return 0;
    /* what waits on the host is a copy of it (schedules.py, input_tensors) */
    const bool copied =
        stage_module_goes(s, first) && w->away.modules->named_input;
    const bool kept = w->keeps_input && !copied;
    return kept || stage_recomputed(s, first) ? 0 : w->received;
}

static void add_frame(struct stage *s, uint64_t bytes, uint32_t first,
                      uint32_t last)
{
    if (bytes > 0 && first <= last + 1 && s->n_frames < FRAMES_MAX)
        s->frame[s->n_frames++] = (struct frame){ bytes, first, last };
}

/* Whether a graph, or a checkpoint, keeps the result of the block before. */
static bool keeps_result(const struct stage *s, uint32_t position)
{
    const struct block_walk *before = &s->walk[stage_block(s, position - 1)];
    return (before->keeps_output && !stage_recomputed(s, position - 1))
           || s->walk[stage_block(s, position)].keeps_input
           || stage_recomputed(s, position);
}

/* Where the stack that begins at a position ends. */
static uint32_t stack_end(const struct stage *s, uint32_t position)
{
    uint32_t end = position;
    while (end + 1 < s->n && stage_is_layer(s, end + 1)
           && s->p->block[stage_block(s, end + 1)].kind == BLOCK_LAYER)
        end++;
    return end;
}

/* A result that is handed to a block far above is in a list of the model's, to
 * the end of its last stack: of a model that is one part, to the loss's. */
static void frame_far(struct stage *s, uint32_t i)
{
    const struct block *b = &s->p->block[stage_block(s, i)];
    if (!b->hands_far || !b->memory_waits)
        return;
    const bool loss = s->p->block[s->p->head].hands_far;
    add_frame(s, s->walk[stage_block(s, i)].framed, i + 1,
              s->n - (loss ? 1 : 2));
}

/* The first layer of a stack holds its input itself. Of two stacks the first
 * one's result can be held to the end of the loss. */
void stage_frames_init(struct stage *s)
{
    s->hands_far = s->p->n_spans > 0;
    for (uint32_t i = 0; i + 1 < s->n; i++) {
        const struct block *b = &s->p->block[stage_block(s, i)];
        const struct block_walk *w = &s->walk[stage_block(s, i)];
        if (b->kind == BLOCK_LAYER && !b->hands_far) {
            i = stage_row_end(s, i) - 1;
            continue;
        }
        s->hands_far = s->hands_far || b->hands_far;
        if (b->kind == BLOCK_LAYER)
            frame_far(s, i);
        if (b->kind != BLOCK_EMBED && b->kind != BLOCK_JOINT)
            continue;
        const uint32_t end = b->holds_output ? s->n - 1 : stack_end(s, i + 1);
        const bool held = b->holds_input || b->frames_input;
        if (b->kind == BLOCK_JOINT && held && !keeps_result(s, i))
            add_frame(s, w->input, i + 1, b->holds_input ? s->n - 1 : end);
        add_frame(s, w->framed, i + 1, end);
        const tensor_id result = s->p->tensor[b->output].storage;
        if (s->p->tensor[result].framed && !keeps_result(s, i + 1)
            && (i > 0 || stage_held_input(s) == 0))
            add_frame(s, w->output, i + 2, end);
    }
}

/* What the embedding handed to the layers above. */
static uint64_t handed_above(const struct stage *s, uint32_t position)
{
    uint64_t sum = 0;
    if (s->embed && position == 0) /* its own, so far */
        return 0;
    for (uint32_t i = position + 1; i < s->n; i++)
        sum += s->walk[stage_block(s, i)].takes;
    return sum;
}

uint64_t stage_frames(const struct stage *s, uint32_t position)
{
    uint64_t sum = s->hands_far ? handed_above(s, position) : 0;
    for (uint32_t i = 0; i < s->n_frames; i++)
        if (s->frame[i].first <= position && position <= s->frame[i].last)
            sum += s->frame[i].bytes;
    return sum;
}

uint64_t stage_frames_inside(const struct stage *s)
{
    uint64_t sum = stage_frames(s, s->n - 1);
    for (uint32_t i = 0; i < s->n_frames; i++)
        sum += s->frame[i].last + 2 == s->n ? s->frame[i].bytes : 0;
    return sum;
}

/* Copies of layers on another GPU are theirs alone. */
uint64_t stage_shared_inside(const struct stage *s)
{
    return run_spreads(s->run) ? s->shared_late : s->shared;
}

uint64_t stage_shared_ahead(const struct stage *s, uint32_t position)
{
    uint64_t later = 0;
    for (uint32_t i = 0; i < s->p->n_spans; i++) {
        const struct stack_span *span = &s->p->span[i];
        if (s->shared > 0 && span->made + 1 > max_u64(position, 1))
            later += round_alloc(s->p->tensor[span->of].bytes);
    }
    return s->shared - later;
}

/* Of what the layers of one stack alone have: what is gone where backward is at
 * a position, or what its checkpoint makes again. */
static uint64_t gone(const struct stage *s, uint32_t position, bool again)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->p->n_spans; i++) {
        const struct stack_span *span = &s->p->span[i];
        const uint64_t last = again ? span->low : span->last;
        if (last + 1 > max_u64(position, 1)) /* one more than the layer's */
            sum += s->span_bytes[i];
    }
    return sum;
}

/* Below the layers that it is made for there is the embedding alone. */
uint64_t stage_shared_back(const struct stage *s, uint32_t position)
{
    const bool below = s->embed && position == 0;
    if (below && s->shared_last < s->shared_kept)
        return s->shared_last;
    return s->shared_kept - gone(s, position, false);
}

uint64_t stage_shared_again(const struct stage *s, uint32_t position)
{
    return s->shared - gone(s, position, true);
}

/* What layers above have given of gradients that several add up. */
static uint64_t summed_gradients(const struct stage *s, uint32_t position)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->p->n_spans; i++) {
        const struct stack_span *span = &s->p->span[i];
        const struct tensor *t = &s->p->tensor[span->of];
        if (t->needs_grad && position > span->low && position <= span->high)
            sum += round_alloc(t->bytes);
    }
    return sum;
}

uint64_t stage_far_gradients(const struct stage *s, uint32_t position)
{
    uint64_t made = 0, used = 0;
    if (s->p->n_spans > 0)
        return summed_gradients(s, position);
    for (uint32_t i = position; i < s->n && s->hands_far; i++) {
        const struct block *b = &s->p->block[stage_block(s, i)];
        if (!b->hands_far || !s->p->tensor[b->memory].needs_grad)
            continue;
        if (b->memory_waits)
            used += round_alloc(s->p->tensor[b->memory].bytes);
        else if (i > position)
            made += round_alloc(s->p->tensor[b->memory].bytes);
    }
    return made > used ? made - used : 0;
}

bool stage_checkpoints_units(const struct stage *s)
{
    const struct run *run = s->run;
    return run_is_hf(run) && run->engine == ENGINE_FSDP
           && run->recompute_reentrant && !run->recompute_in_unit;
}

/* FSDP version 1 hooks the inputs of a unit that is not trained, to cut its
 * weights when their gradients are there, and takes the hooks away when the
 * whole backward is over (_runtime_utils.py,
 * _register_post_backward_reshard_only_hook, _finalize_params). Where a
 * reentrant checkpoint is around the unit, as transformers' are, these inputs
 * are leaves of its own: the hook, the leaf's node and the leaf hold one
 * another, and the leaf its gradient. Adapters are units of their own inside
 * (peft/utils/other.py, fsdp_auto_wrap_policy). Counted by
 * tests/oracle/fsdp_hooks.py. */
bool stage_hooks_hold(const struct stage *s, uint32_t position)
{
    const uint32_t b = stage_block(s, position);
    const tensor_id input = s->p->block[b].input;
    return stage_checkpoints_units(s)
           && (s->run->lora_rank > 0 || s->states[b].elems == 0)
           && input != TENSOR_NONE && s->p->tensor[input].needs_grad;
}

/* Of checkpoints from a position on. */
static uint64_t hooked_from(const struct stage *s, uint32_t position)
{
    return s->before[s->n].hooked - s->before[position].hooked;
}

static uint32_t after(const struct stage *s, uint32_t position)
{
    return stage_recomputed(s, position) ? stage_group_last(s, position) + 1
                                         : position + 1;
}

uint64_t stage_hooked_inputs(const struct stage *s, uint32_t position)
{
    return hooked_from(s, after(s, position));
}

/* That of the checkpoint right above is what this backward begins with. */
uint64_t stage_hooked_gradients(const struct stage *s, uint32_t position)
{
    const uint32_t above = after(s, position);
    return above < s->n ? hooked_from(s, after(s, above)) : 0;
}
