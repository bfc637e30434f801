/*
 * What an estimate says of itself once it is there: where a figure is told and
 * not simulated, what was taken for want of a key, what had no effect. Owns no
 * figure.
 */
#include "plan/plan.h"

#include "fold/fold.h"
#include "fold/memory.h"

#include "base/unit.h"
#include "data/constants.h"

#include <math.h>

#include "base/banned.h"

/* PEFT passes over a word of a list whose others it finds. */
static void say_targets(struct memplan_report *r)
{
    const uint64_t asked = run_adapts(&r->run) ? r->run.lora_targets : 0;
    const uint64_t idle = asked & ~r->program.lora_words;
    char words[LORA_WORDS_MAX], text[LORA_WORDS_MAX + 80];
    if (asked >> LORA_ALL_LINEAR != 0 || idle == 0)
        return;
    str_format(text, sizeof text,
               "'lora_targets' %s has no effect: the model has no such module",
               lora_words(idle, words));
    run_assume(&r->run, KEY_LORA_TARGETS, text);
}

/* The simulation stops where it would no longer be instant.
 * [docs/method.md eq. reserved] has both figures */
static void say_given_up(struct memplan_report *r)
{
    if (r->memory.stage[r->memory.worst].sim.done)
        return;
    run_say(&r->run, KEY_FAST,
            r->run.fast ? "what is reserved is told from the fullest moments, "
                          "not simulated: within # % of the simulation in nine "
                          "of ten (without --fast)"
                        : "too many allocations to simulate: what is reserved "
                          "is told from the fullest moments, as with --fast",
            r->run.engine == ENGINE_FSDP2 ? FAST_NEAR_FSDP2_PERCENT
                                          : FAST_NEAR_PERCENT);
}

/* What is reserved depends on the order in which samples come. */
static void say_lengths(struct memplan_report *r)
{
    char low[UNIT_TEXT_MAX], high[UNIT_TEXT_MAX], text[ASSUMPTION_TEXT];
    const struct simulated *sim =
        &r->memory.stage[r->memory.reserved_stage].sim;
    if (sim->reserved_most == 0)
        return;
    str_format(text, sizeof text,
               "samples of up to %llu token%s: what is reserved is the median "
               "of %d orders, %s to %s",
               (unsigned long long)r->run.seq_len,
               unit_s((double)r->run.seq_len), LENGTH_ORDERS,
               unit_format_bytes(low, sim->reserved_least),
               unit_format_bytes(high, sim->reserved_most));
    run_assume(&r->run,
               r->run.lengths.kind == LENGTHS_LISTED ? KEY_LENGTHS
                                                     : KEY_LENGTH_MEAN,
               text);
}

/* Nobody says how fast the host is, and its disks. */
static void say_moved(struct memplan_report *r)
{
    static const enum setup_key keys[] = { KEY_OFFLOAD_OPTIMIZER,
                                           KEY_OFFLOAD_PARAMS,
                                           KEY_OFFLOAD_ACTIVATIONS };
    char text[ASSUMPTION_TEXT];
    bool moved = false, disk = false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const int64_t where = r->run.setup.v[keys[i]].n;
        moved = moved || (r->run.given[keys[i]] && where != OFFLOAD_NONE);
        disk = disk || (r->run.given[keys[i]] && where == OFFLOAD_NVME);
    }
    if (r->run.given[KEY_MFU])
        return;
    if (moved)
        run_assume(&r->run, KEY_HOST_BANDWIDTH,
                   "copies to the host and back run at the link's rate, Adam "
                   "there as fast as where it was timed (--host-bandwidth)");
    if (!disk || r->run.given[KEY_NVME_BANDWIDTH])
        return;
    str_format(
        text, sizeof text,
        "a node's disks read %.0f GB/s and write %.0f, as four of PCIe 4 "
        "did, whatever else its processes do (--nvme-bandwidth)",
        NVME_NODE_READ_BYTES_S / 1e9,
        NVME_NODE_READ_BYTES_S * NVME_WRITE_SHARE / 1e9);
    run_assume(&r->run, KEY_NVME_BANDWIDTH, text);
}

/* Nothing computes faster than its peak: what is given of its speed is
 * wrong. */
static void say_beyond_peak(struct memplan_report *r)
{
    const struct compute_result *c = &r->compute;
    const bool calibrated = r->run.setup.calibration.rows > 0;
    char text[ASSUMPTION_TEXT];
    if (!(c->mfu > 1 || c->hfu > 1))
        return;
    if (c->mfu_given) {
        str_format(text, sizeof text,
                   "impossible: with what is recomputed, an MFU of %.0f%% is "
                   "%.0f%% of the GPU's peak (--mfu)",
                   100 * c->mfu, 100 * c->hfu);
        run_assume(&r->run, KEY_MFU, text);
        return;
    }
    str_format(text, sizeof text,
               "impossible: the predicted step computes at %.0f%% of the GPU's "
               "peak%s",
               100 * fmax(c->mfu, c->hfu),
               calibrated ? ", so the calibration's constants are not its "
                            "speeds"
                          : "");
    run_assume(&r->run, KEY_COUNT, text);
}

/* torch/optim/_muon.py: "Muon only supports 2D parameters". */
static void say_muon(struct memplan_report *r)
{
    if (r->run.optimizer != OPT_MUON || run_engine_is_megatron(&r->run))
        return;
    for (uint32_t i = 0; i < r->program.n_tensors; i++) {
        const struct tensor *t = &r->program.tensor[i];
        if (t->role != ROLE_PARAM || !t->trainable
            || (t->slab <= 1 && t->last[0] == 0) || !t->matmul
            || t->group == PG_HEAD)
            continue;
        run_assume(
            &r->run, KEY_OPTIMIZER,
            "Muon takes experts and convolutions as matrices, as Keller "
            "Jordan's does; torch.optim.Muon refuses them (--optimizer)");
        return;
    }
}

/* Adapters' tensors are too small for the driver to move them. */
static void say_paged(struct memplan_report *r)
{
    for (uint64_t i = 0; run_pages(&r->run) && i < r->memory.n_stages; i++) {
        if (r->memory.stage[i].paged == 0)
            continue;
        run_assume(&r->run, KEY_COUNT,
                   "paged moments are in unified memory: on the GPU as far as "
                   "there is room, the rest on the host, with no time for "
                   "moving them");
        return;
    }
}

/* Experts of a layer, where they are one tensor that FSDP 2 cuts between them;
 * else 0. */
static uint64_t experts_cut(const struct memplan_report *r)
{
    for (uint32_t i = 0; i < r->program.n_tensors; i++) {
        const struct tensor *t = &r->program.tensor[i];
        if (t->role == ROLE_PARAM && t->group == PG_EXPERT && t->slab > 1)
            return t->rows / t->slab;
    }
    return 0;
}

/* That more ranks than experts need more memory surprises. */
static void say_padded(struct memplan_report *r)
{
    const uint64_t experts = experts_cut(r), ranks = r->run.expert_shard;
    char text[ASSUMPTION_TEXT];
    if (r->run.engine != ENGINE_FSDP2 || r->run.zero == 0 || experts == 0
        || experts % ranks == 0)
        return;
    str_format(text, sizeof text,
               "FSDP 2 cuts a layer's %llu experts between experts: %llu ranks "
               "gather and reduce as much as %llu (--shard-degree %llu, or "
               "--engine fsdp)",
               (unsigned long long)experts, (unsigned long long)ranks,
               (unsigned long long)(div_up(experts, ranks) * ranks),
               (unsigned long long)gcd_u64(experts, ranks));
    run_assume(&r->run, KEY_SHARD_DEGREE, text);
}

/* bitsandbytes replaces nn.Linear, and experts are one parameter since
 * transformers 5 (integrations/bitsandbytes.py, replace_with_bnb_linear;
 * bitsandbytes#1849). */
static void say_kept_experts(struct memplan_report *r)
{
    char text[ASSUMPTION_TEXT];
    if (!run_adapts(&r->run) || experts_cut(r) == 0
        || !run_keeps_experts(&r->run))
        return;
    str_format(
        text, sizeof text,
        "experts stay in %s%s: bitsandbytes does not pack transformers 5's, one "
        "parameter of a layer's (--linear-experts: an nn.Linear each, as in "
        "transformers 4)",
        dtype_name(run_unquantised_dtype(&r->run)),
        r->run.kbit_cast == KBIT_CAST_NONE ? ""
                                           : " (--kbit-cast none: 16 bits)");
    run_assume(&r->run, KEY_LINEAR_EXPERTS, text);
}

void plan_say_parts(struct memplan_report *r)
{
    say_targets(r);
    say_kept_experts(r);
    say_muon(r);
    say_paged(r);
    say_padded(r);
}

void plan_say_memory(struct memplan_report *r)
{
    say_given_up(r);
    say_lengths(r);
}

void plan_say_time(struct memplan_report *r)
{
    say_moved(r);
    say_beyond_peak(r);
}
