/*
 * Owns what variants of DeepSpeed's ZeRO-3 cannot have: second shards and fewer
 * bits (ZeRO++), groups of ranks (MiCS). Changes nothing.
 */
#include "spec/resolve.h"

#include <inttypes.h>

#include "base/banned.h"

/* What none of them is modelled with, or has: true where that was said. */
static bool refuse_beside(const struct run *r, enum setup_key key,
                          const char *name, struct diag *d)
{
    memplan_error *e = NULL;
    if (r->offload_params != OFFLOAD_NONE) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, key,
                        "%s with offload_params is not modelled yet", name);
        diag_hint(e, "leave it out, or leave offload_params out");
    } else if (r->framework == FW_MEGATRON_DEEPSPEED) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, key,
                        "%s with framework 'megatron-deepspeed', whose "
                        "DeepSpeed had none",
                        name);
        diag_hint(e, "use --framework deepspeed");
    }
    return e != NULL;
}

/* ZeRO++'s groups are cut out of all ranks, one after another (utils/groups.py,
 * _create_zero_param_parallel_group); second shards lie where weights do. */
static void check_hpz(const struct run *r, struct diag *d)
{
    const uint64_t n = r->hpz_partition_size;
    memplan_error *e = NULL;
    if (r->zero != 3 || n <= 1)
        return;
    if (r->dp % n != 0) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_HPZ_PARTITION_SIZE,
                        "hpz_partition_size %" PRIu64
                        " does not divide the %" PRIu64 " data-parallel ranks",
                        n, r->dp);
        resolve_hint_divisors(e, r->dp);
    } else if (r->dp != r->gpus || r->shard != r->dp || r->mics) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_HPZ_PARTITION_SIZE,
                        "hpz_partition_size beside tp, cp, shard_degree or "
                        "mics_shard_size is not modelled yet");
        diag_hint(e, "leave hpz_partition_size out, or the others");
    } else {
        refuse_beside(r, KEY_HPZ_PARTITION_SIZE, "hpz_partition_size", d);
    }
}

/* Groups are cut out of all ranks, one after another; gradients of replicas
 * are all-reduced on the GPU, and gathers read shards there (runtime/zero/
 * mics.py, mics_utils.py). */
static void check_mics(const struct run *r, struct diag *d)
{
    const enum setup_key key =
        r->given[KEY_MICS_SHARD_SIZE] ? KEY_MICS_SHARD_SIZE : KEY_SHARD_DEGREE;
    const uint64_t given = r->setup.v[KEY_SHARD_DEGREE].n;
    const uint64_t size = r->setup.v[KEY_MICS_SHARD_SIZE].n;
    memplan_error *e = NULL;
    if (!r->mics)
        return;
    if (r->given[KEY_SHARD_DEGREE] && given != size) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, key,
                        "mics_shard_size %" PRIu64
                        " contradicts shard_degree %" PRIu64,
                        size, given);
        diag_hint(e, "leave one of them out");
    } else if (r->dp != r->gpus) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, key,
                        "DeepSpeed's ZeRO-3 in groups of ranks (MiCS) beside "
                        "tp or cp: it cuts groups out of all ranks");
        diag_hint(e, "leave it out, or use --framework torchtitan");
    } else if (r->offload_params != OFFLOAD_NONE
               || r->offload_optimizer != OFFLOAD_NONE) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, key,
                        "DeepSpeed's ZeRO-3 in groups of ranks (MiCS) with "
                        "states on the CPU: 'local sharding has no support "
                        "for CPU offloading'");
        diag_hint(e, "leave it out, or leave offload_optimizer and "
                     "offload_params out");
    } else {
        refuse_beside(r, key, "DeepSpeed's ZeRO-3 in groups of ranks (MiCS)",
                      d);
    }
}

/* MiCS gathers and reduces by itself; swapped weights are gathered one by one,
 * and their quantized kin not held against anything. */
static void check_quantized(const struct run *r, struct diag *d)
{
    const enum setup_key key = r->quantized_weights
                                   ? KEY_ZERO_QUANTIZED_WEIGHTS
                                   : KEY_ZERO_QUANTIZED_GRADIENTS;
    const char *name = setup_field(key)->key;
    memplan_error *e = NULL;
    if (r->zero != 3 || (!r->quantized_weights && !r->quantized_gradients))
        return;
    if (r->mics) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, key,
                        "%s in groups of ranks (MiCS), which sends everything "
                        "in 16 bits",
                        name);
        diag_hint(e, "leave it out, or leave out mics_shard_size and "
                     "shard_degree");
    } else if (r->dp != r->gpus) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, key,
                        "%s beside tp or cp is not modelled yet", name);
        diag_hint(e, "leave it out");
    } else if (!refuse_beside(r, key, name, d) && run_reduces_in_4_bits(r)
               && r->gpus % r->gpus_per_node != 0) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_ZERO_QUANTIZED_GRADIENTS,
                        "zero_quantized_gradients on nodes that are not full: "
                        "every rank of a node has its kin in all others");
        diag_hint(e, "leave it out, or use --gpus %" PRIu64,
                  r->gpus / r->gpus_per_node * r->gpus_per_node);
    }
}

/* A group spans whole nodes, more than one (create_mics_comm_groups). */
static void check_mics_nodes(const struct run *r, struct diag *d)
{
    if (!r->mics || !r->mics_hierarchical
        || (r->shard > r->gpus_per_node && r->shard % r->gpus_per_node == 0))
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_MICS_HIERARCHICAL,
                    "mics_hierarchical_params_gather with groups of %" PRIu64
                    " ranks, which are not several whole nodes of %" PRIu64,
                    r->shard, r->gpus_per_node);
    uint64_t size = 2 * r->gpus_per_node;
    while (size < r->dp && r->dp % size != 0)
        size += r->gpus_per_node;
    if (size <= r->dp && r->dp % size == 0)
        diag_hint(e, "leave it out, or use --mics-shard-size %" PRIu64, size);
    else
        diag_hint(e, "leave it out");
}

void resolve_check_zero_3(const struct run *r, struct diag *d)
{
    check_hpz(r, d);
    check_mics(r, d);
    check_mics_nodes(r, d);
    check_quantized(r, d);
}
