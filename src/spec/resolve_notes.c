/*
 * Owns what is said beside defaults: what a layout takes for granted. Changes no
 * value, rejects nothing.
 */
#include "spec/resolve.h"

#include <inttypes.h>

#include "base/banned.h"

/* ---- what the layout takes for granted ---- */

static void say_engine(struct run *r)
{
    if (run_zero_is(r, 3))
        run_say(r, KEY_COUNT,
                "the model is built sharded (zero.Init), else 2 bytes a "
                "parameter more while it starts",
                0);
    if (run_flattens(r) && r->zero_flatten == FLATTEN_GPU)
        resolve_assume(
            r, KEY_ZERO_FLATTEN,
            "weights are flattened on the GPU, where they fit twice, "
            "as since February 2026 (--zero-flatten)");
    if (run_zero_is(r, 3) && r->offload_ratio < 1
        && r->offload_optimizer == OFFLOAD_CPU)
        resolve_note(r, KEY_OFFLOAD_RATIO,
                     "offload_ratio %g moves whole sub-groups: of n, "
                     "int(%g n) stay on the GPU, none of one "
                     "(--sub-group-size)",
                     r->offload_ratio, 1 - r->offload_ratio);
    if (!run_is_fsdp(r))
        return;
    if (r->engine == ENGINE_FSDP && r->shard == 1)
        resolve_note(r, KEY_COUNT,
                     "FSDP version 1 shards nothing on one rank (NO_SHARD), "
                     "which is not modelled: units are gathered as on several");
    if (r->fsdp_units == FSDP_ENDS)
        resolve_note(r, KEY_FSDP_UNITS,
                     "each layer is wrapped, the embedding and the head "
                     "(--fsdp-units)");
    else if (r->fsdp_units == FSDP_EMBEDDING)
        resolve_note(r, KEY_FSDP_UNITS,
                     "each layer is wrapped, and the embedding "
                     "(--fsdp-units)");
    else
        resolve_note(r, KEY_COUNT, "each layer is wrapped, nothing else");
    if (run_keeps_flat_grads(r))
        resolve_assume(r, KEY_USE_ORIG_PARAMS,
                       "gradients stay between steps, up to the next forward: "
                       "use_orig_params, as the Trainer and accelerate launch "
                       "have it (--no-use-orig-params)");
    if (run_torch_pipelines(r))
        resolve_assume(r, KEY_RESHARD_AFTER_FORWARD,
                       "weights stay whole from the first forward to the last "
                       "backward, torchtitan's default with stages "
                       "(--reshard-after-forward)");
    if (run_torch_pipelines(r) && r->grad_sync == SYNC_LAST)
        resolve_assume(r, KEY_GRAD_SYNC,
                       "gradients are whole to the end of the last backward, "
                       "as PyTorch's pipelining leaves them (--grad-sync)");
    else if (r->grad_accum > 1)
        resolve_assume(
            r, KEY_GRAD_SYNC,
            r->grad_sync == SYNC_LAST
                ? "gradients are reduced after the last micro-batch, "
                  "and whole until then (no_sync, as accelerate and "
                  "the Trainer do; --grad-sync)"
                : "gradients are reduced after every micro-batch "
                  "(--grad-sync)");
}

/* Megatron's, of which the flexible one is all-to-all where lower/megatron_flex.c
 * does not have it. */
static void say_dispatcher(struct run *r)
{
    if (!resolve_is_megatron(r) || r->moe_dispatcher != DISPATCH_FLEX)
        return;
    if (r->ep <= 1 && r->etp <= 1)
        resolve_note(r, KEY_MOE_DISPATCHER,
                     "'moe_dispatcher' has no effect: a rank has all experts, "
                     "where Megatron refuses flex");
    else if (r->etp > 1)
        resolve_note(r, KEY_MOE_DISPATCHER,
                     "of experts that are split (--etp) memory is alltoall's, "
                     "not moe_dispatcher flex's");
}

static void say_capacity(struct run *r, double most)
{
    if (r->moe_capacity < most)
        resolve_note(r, KEY_MOE_CAPACITY_FACTOR,
                     "tokens above an expert's capacity are dropped; FLOPs "
                     "are those of all tokens");
    else if (r->moe_padded && r->moe_capacity > 1)
        resolve_note(r, KEY_MOE_PAD_TO_CAPACITY,
                     "experts compute padding: hardware FLOPs have it, MFU "
                     "not");
    else if (!r->moe_padded)
        resolve_note(r, KEY_MOE_CAPACITY_FACTOR,
                     "no expert gets more tokens than its capacity "
                     "(--moe-imbalance)");
}

static void say_routing(struct run *r, const struct spec *spec)
{
    const bool uneven = r->moe_imbalance > 1 && r->ep > 1;
    const double most = uneven ? r->moe_imbalance : 1;
    if (spec->router == ROUTER_INPUT) {
        resolve_note(r, KEY_COUNT,
                     "every token goes through every expert, in transformers' "
                     "code: hardware FLOPs have them all, MFU those chosen");
        return;
    }
    if (uneven)
        resolve_note(r, KEY_COUNT,
                     "memory is that of the rank whose experts get most "
                     "tokens; FLOPs are the average rank's");
    else
        resolve_note(r, KEY_COUNT, "balanced expert routing");
    say_dispatcher(r);
    if (resolve_is_megatron(r) && r->moe_capacity > 0)
        say_capacity(r, most);
}

/* Processors write an image's tokens into the text, one by one. */
static void say_images(struct run *r, const struct spec *spec)
{
    resolve_assume(r, KEY_IMAGES,
                   "one image a sequence, %" PRIu64 " of its tokens (--images)",
                   spec->image_tokens);
    if (r->given[KEY_IMAGES] && r->images > 0)
        resolve_note(r, KEY_IMAGES,
                     "%" PRIu64 " image%s a sequence, each %" PRIu64
                     " of its tokens",
                     r->images, r->images == 1 ? "" : "s", spec->image_tokens);
    if (r->given[KEY_IMAGES] && r->images == 0)
        resolve_note(r, KEY_IMAGES,
                     "sequences without images: the vision part's weights do "
                     "no work");
    if (spec->joint == JOINT_LLAMA4)
        resolve_note(r, KEY_COUNT,
                     "an image is one tile of %" PRIu64 " pixels a side; of "
                     "an image in several, --images counts each",
                     spec->vision->image);
    if (spec->unused_layers > 0 && r->images > 0)
        resolve_note(r, KEY_COUNT,
                     "the vision part's last %" PRIu64
                     "%s in vain: the text takes the states before "
                     "('vision_feature_layer')",
                     spec->unused_layers,
                     spec->unused_layers == 1 ? " layer runs" : " layers run");
}

/* Sizes that no key of the file says. */
static void say_defaulted(struct run *r, const struct spec *spec)
{
    if (spec->defaulted != NULL && spec->defaulted[0] != '\0')
        resolve_note(r, KEY_COUNT, "not in the file, by default of '%s': %s",
                     spec->model_type, spec->defaulted);
}

/* Where the code that made a file and the class that reads it differ. */
static void say_heads(struct run *r, const struct spec *spec)
{
    if (family_is_t5(spec->family) && !spec->tied)
        resolve_note(r, KEY_COUNT,
                     "the head has weights of its own, as the file says and "
                     "its checkpoint has; transformers 5 ties them all the "
                     "same");
    if (spec->family == FAM_MPT && spec->q_bias)
        resolve_note(r, KEY_COUNT,
                     "biases, as 'no_bias' false means to llm-foundry's code; "
                     "transformers' class builds none");
}

static void say_layers(struct run *r, const struct spec *spec)
{
    if (spec->read_as)
        resolve_note(r, KEY_COUNT,
                     "the file is read as a '%s' model, which it does not say "
                     "(--as)",
                     spec->model_type);
    if (spec->default_sizes)
        resolve_note(r, KEY_COUNT,
                     "the file gives no sizes: they are the defaults of '%s'",
                     spec->model_type);
    else
        say_defaulted(r, spec);
    if (spec->vision != NULL && !spec->vision->default_sizes)
        say_defaulted(r, spec->vision);
    say_heads(r, spec);
    if (spec->index_heads > 0 && run_is_hf(r))
        resolve_note(r, KEY_COUNT,
                     "the indexer of keys is not trained: transformers runs it "
                     "without gradients");
    if (spec->ssm.norms && run_is_hf(r) && r->framework == FW_HF)
        resolve_assume(r, KEY_PRECISION,
                       "no autocast, as other models have here: the norms of "
                       "its scan would be in 32 bits, which the kernel refuses "
                       "(--precision)");
    char part[PART_TEXT_MAX];
    if (spec_says_part(spec, part))
        resolve_note(r, KEY_COUNT, "%s", part);
    if (spec->image_tokens > 0)
        say_images(r, spec);
    if (spec->vision == NULL
        && (spec->head == HEAD_ONE || spec->head == HEAD_STATES))
        resolve_note(r, KEY_COUNT,
                     "a part without a head: the loss is the mean of what it "
                     "hands on");
    if (spec->experts > 0)
        say_routing(r, spec);
    if (resolve_is_megatron(r) && r->mask == MASK_NONE)
        resolve_assume(r, KEY_ATTENTION_MASK,
                       "no attention mask from the data loader "
                       "(--attention-mask)");
}

/* torchtitan/components/loss.py since March 2025 */
static void say_compiled_loss(struct run *r)
{
    if (!r->compile || r->impl != IMPL_TORCHTITAN)
        return;
    if (r->loss == LOSS_STANDARD)
        resolve_note(r, KEY_LOSS,
                     "layers compiled, the loss not; torchtitan compiles it "
                     "too since March 2025 (--loss fused)");
    else
        resolve_assume(r, KEY_LOSS,
                       "layers compiled, and the loss, as torchtitan has it "
                       "since March 2025 (--loss standard)");
}

/* torch/utils/checkpoint.py, recomputed[gid]; torch/distributed/pipelining/
 * _backward.py, stage_backward_weight */
static void say_split_checkpoints(struct run *r)
{
    if (r->recompute == RECOMP_FULL && run_torch_pipelines(r)
        && (run_folds(r) || r->schedule == SCHED_ZB_INTERLEAVED))
        resolve_note(r, KEY_COUNT,
                     "a recomputed layer runs again for the gradient of its "
                     "input and for each weight's, where a backward is split: "
                     "so PyTorch's checkpoint does for each call of autograd");
}

void resolve_notes(struct run *r, const struct spec *spec)
{
    resolve_say_stored(r, spec);
    say_compiled_loss(r);
    say_engine(r);
    say_split_checkpoints(r);
    resolve_say_litgpt(r);
    resolve_say_away(r, spec);
    resolve_say_graphs(r);
    say_layers(r, spec);
    resolve_say_moot(r, spec);
    for (size_t i = 0; i < r->setup.notes; i++)
        resolve_note(r, KEY_COUNT, "%s", r->setup.note[i]);
    if (r->setup.notes_beyond > 0)
        resolve_note(r, KEY_COUNT,
                     "%" PRIu32 " more of launch files' entries and lines, "
                     "for which there is no room here",
                     r->setup.notes_beyond);
}
