/*
 * Owns number formats: what a precision means under each engine, and what is
 * said of it. Refuses to reject (resolve_check_engine.c).
 */
#include "spec/resolve.h"

#include "base/count.h"
#include "data/constants.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

static const struct formats {
    enum dtype param, compute, master;
    bool autocast, fp8;
} formats[PRECISION_COUNT] = {
    [PREC_BF16_MIXED] = { DT_BF16, DT_BF16, DT_FP32, false, false },
    [PREC_FP16_MIXED] = { DT_FP16, DT_FP16, DT_FP32, false, false },
    [PREC_BF16_AMP] = { DT_FP32, DT_BF16, DT_NONE, true, false },
    [PREC_FP16_AMP] = { DT_FP32, DT_FP16, DT_NONE, true, false },
    [PREC_BF16] = { DT_BF16, DT_BF16, DT_NONE, false, false },
    [PREC_FP16] = { DT_FP16, DT_FP16, DT_NONE, false, false },
    [PREC_FP32] = { DT_FP32, DT_FP32, DT_NONE, false, false },
    [PREC_TF32] = { DT_FP32, DT_FP32, DT_NONE, false, false },
    [PREC_FP8_MIXED] = { DT_BF16, DT_BF16, DT_FP32, false, true },
    [PREC_FP4_MIXED] = { DT_BF16, DT_BF16, DT_FP32, false, true },
};

/* Jamba's scan refuses autocast (resolve_mixers.c). */
static enum precision default_precision(const struct run *r,
                                        const struct spec *spec)
{
    bool bf16 = r->gpu.peak_bf16_flop_s > 0;
    if (r->framework == FW_HF && spec && spec->ssm.norms)
        return bf16 ? PREC_BF16 : PREC_FP16;
    if (r->framework == FW_HF)
        return bf16 ? PREC_BF16_AMP : PREC_FP16_AMP;
    return bf16 ? PREC_BF16_MIXED : PREC_FP16_MIXED;
}

/* Moments of the quantizing optimizers are what their name says. */
enum dtype resolve_moments(enum optimizer o, enum dtype otherwise)
{
    if (o == OPT_ADAM8BIT || o == OPT_PAGED_ADAM8BIT || o == OPT_LION8BIT
        || o == OPT_GALORE8BIT)
        return DT_INT8;
    if (o == OPT_ADAM4BIT)
        return DT_INT4;
    if (o == OPT_PAGED_ADAMW)
        return DT_FP32;
    return o == OPT_NONE ? DT_NONE : otherwise;
}

/* Made like what the optimizer steps (torch.optim's zeros_like), but in fp32
 * unless told by Megatron (--exp-avg-dtype) and on the CPU by DeepSpeed's own
 * optimizers (ops/adam/cpu_adam.py, fp32_optimizer_states). */
static enum dtype default_moments(const struct run *r)
{
    const struct precision_bytes *p = &r->prec;
    const bool stepped_on_cpu =
        r->engine == ENGINE_DEEPSPEED && r->offload_optimizer != OFFLOAD_NONE
        && (r->optimizer == OPT_ADAMW || r->optimizer == OPT_LION
            || r->optimizer == OPT_ADAGRAD);
    enum dtype t = p->master == DT_NONE ? p->param : p->master;
    if (stepped_on_cpu || (run_engine_is_megatron(r) && p->master != DT_NONE))
        t = DT_FP32;
    return resolve_moments(r->optimizer, t);
}

/* FSDP keeps one copy, the shards, and gathers another dtype than it stores:
 * what elsewhere is the master copy is the parameter there. */
static void formats_of_fsdp(struct run *r, struct precision_bytes *p)
{
    if (p->master != DT_NONE) {
        p->param = p->master;
        p->master = DT_NONE;
    }
    p->grad = p->param; /* sharded gradients are cast to the stored dtype */
    if (r->given[KEY_PARAM_DTYPE])
        p->compute = (enum dtype)r->setup.v[KEY_PARAM_DTYPE].n;
    resolve_count(r, KEY_PARAM_DTYPE, p->autocast ? p->param : p->compute);

    /* MixedPrecisionPolicy: without a reduce_dtype gradients are reduced as
     * they were computed; torchtitan's configuration sets fp32. */
    bool titan = r->impl == IMPL_TORCHTITAN && p->param == DT_FP32;
    enum dtype wire = titan ? DT_FP32 : p->compute;
    p->reduce = p->autocast ? p->param : wire;
}

static void formats_elsewhere(struct run *r, struct precision_bytes *p)
{
    if (r->given[KEY_PARAM_DTYPE]) {
        p->param = (enum dtype)r->setup.v[KEY_PARAM_DTYPE].n;
        if (p->param == DT_FP32) { /* it needs no master copy */
            p->master = DT_NONE;
            p->autocast = p->compute != DT_FP32;
        }
    }
    resolve_count(r, KEY_PARAM_DTYPE, p->param);
    /* Megatron's arguments.py accumulates in fp32 whenever bf16 trains. */
    bool fp32 = run_engine_is_megatron(r) && p->master == DT_FP32
                && p->param == DT_BF16;
    p->grad = fp32 || run_is_bf16_pipeline(r) ? DT_FP32 : p->param;
    p->reduce = fp32 ? DT_FP32 : p->param;
}

enum dtype resolve_dtype(struct run *r, enum setup_key key, enum dtype t)
{
    return (enum dtype)resolve_count(r, key, t);
}

void resolve_precision(struct run *r, const struct spec *spec)
{
    r->precision = (enum precision)resolve_count(r, KEY_PRECISION,
                                                 default_precision(r, spec));
    r->optimizer = (enum optimizer)resolve_count(r, KEY_OPTIMIZER, OPT_ADAMW);

    const struct formats *f = &formats[r->precision];
    struct precision_bytes *p = &r->prec;
    p->param = f->param;
    p->compute = f->compute;
    p->master = f->master;
    p->autocast = f->autocast;
    p->fp8 = f->fp8;
    if (run_is_fsdp(r))
        formats_of_fsdp(r, p);
    else
        formats_elsewhere(r, p);

    bool grad_given = r->given[KEY_GRAD_DTYPE];
    p->grad = resolve_dtype(r, KEY_GRAD_DTYPE, p->grad);
    /* DeepSpeed's communication type stays the model's (engine.py,
     * communication_data_type), FSDP's is a key of its own. */
    if (grad_given && !run_is_fsdp(r) && r->engine != ENGINE_DEEPSPEED)
        p->reduce = p->grad;
    p->reduce = resolve_dtype(r, KEY_REDUCE_DTYPE, p->reduce);
    p->master = resolve_dtype(r, KEY_MASTER_DTYPE, p->master);
    if (run_is_fsdp(r) && p->master == p->param)
        p->master = DT_NONE; /* the shards are it */
    p->optim = resolve_dtype(r, KEY_OPTIMIZER_DTYPE, default_moments(r));
    resolve_fp8(r);
}

/* ZeRO clones its partition of the weights, whatever their type is: what the
 * optimizer steps lies apart from what the model reads (stage_1_and_2.py and
 * stage3.py, single_partition_of_fp32_groups, fp32_partitioned_groups_flat;
 * stage 3 means to share fp32 ones, but compares a device with its name).
 * After what adapters make of the types. */
void resolve_masters(struct run *r)
{
    struct precision_bytes *p = &r->prec;
    if (r->engine != ENGINE_DEEPSPEED || r->zero == 0)
        return;
    if (!r->given[KEY_MASTER_DTYPE] && p->master == DT_NONE)
        p->master = p->param;
    if (!r->given[KEY_OPTIMIZER_DTYPE])
        p->optim = default_moments(r);
    r->setup.v[KEY_MASTER_DTYPE].n = p->master;
    r->setup.v[KEY_OPTIMIZER_DTYPE].n = p->optim;
}

static const char *precision_meaning(const struct run *r)
{
    if (r->prec.autocast)
        return "32-bit weights under autocast";
    if (r->prec.master == DT_FP32)
        return "16-bit weights with a 32-bit master copy";
    if (r->prec.compute != DT_FP32 && r->prec.param == DT_FP32)
        return "32-bit shards, gathered in 16 bits";
    return "one dtype throughout";
}

void resolve_say_precision(struct run *r)
{
    resolve_say(r, KEY_PRECISION, "precision #: # (--precision)",
                resolve_word(r, KEY_PRECISION), SAY_TEXT(precision_meaning(r)));
}

void resolve_say_emulation(struct run *r)
{
    if (r->prec.compute == DT_BF16 && r->gpu.peak_bf16_flop_s <= 0)
        resolve_note(r, KEY_PRECISION,
                     "bf16 is emulated on %s, at fp32 speed (--precision)",
                     r->gpu.name);
}
