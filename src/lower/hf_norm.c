/*
 * Owns the norms of Hugging Face's classes, each written out in the kernels
 * that its forward calls. Refuses to know where in a layer a norm stands.
 */
#include "lower/hf.h"

#include "base/banned.h"

/* ---- RMSNorm ---- */

/* x * rsqrt(mean(x^2) + eps), all in fp32; x is already. */
static tensor_id unit_rms(struct builder *b, tensor_id x)
{
    const tensor_id square = build_pow(b, "norm square", x);
    const tensor_id mean = build_mean(b, "variance", square);
    const tensor_id eps = build_unary(b, OP_ADD, "variance + eps", mean);
    const tensor_id root = build_rsqrt(b, "rsqrt", eps);
    return build_mul(b, "normalised", x, root);
}

tensor_id hf_unit_norm(struct builder *b, const char *name, tensor_id x)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id up = build_cast(b, "norm fp32", x, DT_FP32);
    return build_cast(b, name, unit_rms(b, up), dtype);
}

/* GemmaRMSNorm: times (1 + weight), in fp32 to the end. */
static tensor_id gemma_norm(struct builder *b, const char *name, tensor_id x,
                            tensor_id weight)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id up = build_cast(b, "norm fp32", x, DT_FP32);
    const tensor_id unit = unit_rms(b, up);
    const tensor_id w = build_cast(b, "weight fp32", weight, DT_FP32);
    const tensor_id plus = build_unary(b, OP_ADD, "1 + weight", w);
    const tensor_id out = build_mul(b, name, unit, plus);
    return build_cast(b, name, out, dtype);
}

/* Olmo2RMSNorm: the weight is applied before the cast back; HeliumRMSNorm and
 * NemotronHRMSNorm cast it too. */
static tensor_id olmo2_norm(struct builder *b, const char *name, tensor_id x,
                            tensor_id weight)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id up = build_cast(b, "norm fp32", x, DT_FP32);
    const tensor_id unit = unit_rms(b, up);
    if (b->spec->family == FAM_HELIUM || b->spec->family == FAM_NEMOTRON_H)
        weight = build_cast(b, "weight fp32", weight, DT_FP32);
    const tensor_id out = build_mul(b, name, weight, unit);
    return build_cast(b, name, out, dtype);
}

/* T5LayerNorm: the variance alone is of an fp32 copy; with 16-bit weights the
 * product comes back to them. So InternLM's and Baichuan's; MiniCPM's comes
 * back to what came in, ChatGLM's after the weight. */
static tensor_id t5_norm(struct builder *b, const char *name, tensor_id x,
                         tensor_id weight)
{
    const enum family family = b->spec->family;
    const enum dtype given = tensor_of(b, x)->dtype;
    const tensor_id up = build_cast(b, "norm fp32", x, DT_FP32);
    const tensor_id square = build_pow(b, "norm square", up);
    const tensor_id mean = build_mean(b, "variance", square);
    const tensor_id eps = build_unary(b, OP_ADD, "variance + eps", mean);
    const tensor_id root = build_rsqrt(b, "rsqrt", eps);
    tensor_id unit = build_mul(b, "normalised", x, root);
    if (family == FAM_CHATGLM)
        return build_cast(b, name, build_mul(b, name, weight, unit), given);
    const enum dtype dtype =
        family == FAM_MINICPM ? given : tensor_of(b, weight)->dtype;
    if (hf_is_half(dtype))
        unit = build_cast(b, "normalised", unit, dtype);
    return build_mul(b, name, weight, unit);
}

/* LlamaRMSNorm: its variables hold the product in fp32, and the variance, to
 * its end. */
static tensor_id llama_norm(struct builder *b, const char *name, tensor_id x,
                            tensor_id weight)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id up = build_cast(b, "norm fp32", x, DT_FP32);
    const tensor_id mean =
        build_mean(b, "variance", build_pow(b, "norm square", up));
    const tensor_id eps = build_unary(b, OP_ADD, "variance + eps", mean);
    const tensor_id unit =
        build_mul(b, "normalised", up, build_rsqrt(b, "rsqrt", eps));
    const tensor_id down = build_cast(b, "normalised", unit, dtype);
    const tensor_id out = build_mul(b, name, weight, down);
    hf_hold(b, "variance", mean);
    hf_hold(b, "hidden_states", unit);
    return out;
}

/* Classes that are not written as Llama's. */
typedef tensor_id norm_fn(struct builder *b, const char *name, tensor_id x,
                          tensor_id weight);
static norm_fn *own_norm(enum family family)
{
    static const struct {
        enum family family;
        norm_fn *norm;
    } others[] = {
        { FAM_INTERNLM, t5_norm },
        { FAM_BAICHUAN, t5_norm },
        { FAM_MINICPM, t5_norm },
        { FAM_CHATGLM, t5_norm },
        { FAM_GEMMA, gemma_norm },
        { FAM_GEMMA2, gemma_norm },
        { FAM_VAULTGEMMA, gemma_norm },
        { FAM_FLEX_OLMO, olmo2_norm },
        { FAM_GEMMA3, gemma_norm },
        { FAM_QWEN3_NEXT, gemma_norm },
        { FAM_QWEN3_5, gemma_norm },
        { FAM_QWEN3_5_MOE, gemma_norm },
        { FAM_OLMO2, olmo2_norm },
        { FAM_OLMO3, olmo2_norm },
        { FAM_HELIUM, olmo2_norm },
        { FAM_NEMOTRON_H, olmo2_norm },
        { FAM_GROK, olmo2_norm },
        { FAM_GPT_OSS, olmo2_norm },
        /* _norm(x.float()).type_as(x): no variable has it */
        { FAM_QWEN, build_rms_norm_written_out },
        { FAM_LLAMA4, build_rms_norm_written_out },
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].family == family)
            return others[i].norm;
    return llama_norm;
}

static tensor_id rms_norm(struct builder *b, const char *name, tensor_id x,
                          tensor_id weight)
{
    const bool fused = b->run->norm_kernel == NORM_FUSED;
    if (fused && !hf_is_liger(b)) /* flash-attn's, Apex's */
        return build_rms_norm(b, name, x, weight);
    if (fused) {
        const tensor_id out = build_rms_norm(b, name, x, weight);
        /* in_place=True, but where the residual needs the gradient too
           (liger_kernel/transformers/monkey_patch.py) */
        if (b->spec->family != FAM_GEMMA2 && b->spec->family != FAM_GEMMA3)
            build_place(b, PLACE_GRADIENT);
        return out;
    }
    if (b->spec->relative_buckets > 0)
        return t5_norm(b, name, x, weight);
    return own_norm(b->spec->family)(b, name, x, weight);
}

/* ---- LayerNorm ---- */

/* CohereLayerNorm: x - mean is computed twice, and both are kept. */
static tensor_id cohere_norm(struct builder *b, const char *name, tensor_id x,
                             tensor_id weight)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id up = build_cast(b, "norm fp32", x, DT_FP32);
    const tensor_id mean = build_mean(b, "mean", up);
    const tensor_id first = build_add(b, "x - mean", up, mean);
    const tensor_id square = build_pow(b, "norm square", first);
    const tensor_id variance = build_mean(b, "variance", square);
    const tensor_id centred = build_add(b, "x - mean", up, mean);
    const tensor_id eps = build_unary(b, OP_ADD, "variance + eps", variance);
    const tensor_id root = build_rsqrt(b, "rsqrt", eps);
    const tensor_id unit = build_mul(b, "normalised", centred, root);
    const tensor_id w = build_cast(b, "weight fp32", weight, DT_FP32);
    const tensor_id out = build_mul(b, name, w, unit);
    return build_cast(b, name, out, dtype);
}

/* OlmoLayerNorm: no parameters, in fp32. */
static tensor_id olmo_norm(struct builder *b, const char *name, tensor_id x)
{
    const enum dtype dtype = tensor_of(b, x)->dtype;
    const tensor_id up = build_cast(b, "norm fp32", x, DT_FP32);
    const tensor_id out =
        build_layer_norm(b, name, up, TENSOR_NONE, TENSOR_NONE);
    return build_cast(b, name, out, dtype);
}

/* NemotronLayerNorm1P: 1 + weight is kept with the input; under autocast all
 * three are cast down. */
static tensor_id nemotron_norm(struct builder *b, const char *name, tensor_id x,
                               const tensor_id param[2])
{
    const bool autocasts = b->autocast;
    tensor_id weight = build_unary(b, OP_ADD, "1 + weight", param[0]);
    weight = build_autocast(b, "autocast", weight);
    const tensor_id bias = build_autocast(b, "autocast", param[1]);
    x = build_autocast(b, "autocast", x);
    b->autocast = false;
    const tensor_id out = build_layer_norm(b, name, x, weight, bias);
    b->autocast = autocasts;
    return out;
}

static tensor_id layer_norm(struct builder *b, const struct hf_norm *n,
                            tensor_id weight)
{
    const enum family family = b->spec->family;
    if (n->kind == NORM_LAYER_PLAIN && family == FAM_OLMO)
        return olmo_norm(b, n->name, n->x);
    if (n->kind == NORM_LAYER_NOBIAS
        && (family == FAM_COHERE || family == FAM_COHERE2))
        return cohere_norm(b, n->name, n->x, weight);
    tensor_id bias = TENSOR_NONE;
    if (n->kind == NORM_LAYER)
        bias = build_bias(b, n->name, PG_NORM, n->n, n->full);
    if (family == FAM_NEMOTRON)
        return nemotron_norm(b, n->name, n->x, (tensor_id[]){ weight, bias });
    return build_layer_norm(b, n->name, n->x, weight, bias);
}

tensor_id hf_norm(struct builder *b, const struct hf_norm *n)
{
    tensor_id weight = TENSOR_NONE;
    if (n->kind != NORM_LAYER_PLAIN)
        weight = build_vector(b, n->name, PG_NORM, n->n, n->full);
    if (n->kind == NORM_RMS)
        return rms_norm(b, n->name, n->x, weight);
    return layer_norm(b, n, weight);
}

tensor_id hf_hidden_norm(struct builder *b, const char *name, tensor_id x)
{
    return hf_norm(
        b, &(struct hf_norm){
               .name = name, .x = x, .kind = b->spec->norm, .n = b->h });
}
