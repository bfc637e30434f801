/*
 * What a run makes of a checkpoint whose weights are packed: from_pretrained
 * keeps them so under adapters, and nothing trains them.
 * [transformers trainer_utils.py, validate_quantization_for_training]
 */
#include "spec/resolve.h"

#include <inttypes.h>

#include "data/constants.h"

#include "base/banned.h"

static enum dtype stored_dtype(const struct spec *spec)
{
    switch (spec->stored.as) {
    case STORED_NF4: return DT_NF4;
    case STORED_FP4: return DT_FP4;
    case STORED_INT8: return DT_INT8;
    case STORED_INT4: return DT_INT4;
    case STORED_PLAIN:
    case STORED_OTHER: break;
    }
    return DT_NONE;
}

bool resolve_takes_stored(const struct run *r, const struct spec *spec)
{
    return run_adapts(r) && run_is_hf(r) && !r->given[KEY_BASE_DTYPE]
           && stored_dtype(spec) != DT_NONE;
}

/* Fabric's 'bf16-mixed' has all weights in fp32 (lightning/fabric/plugins/
 * precision/amp.py). */
enum dtype resolve_stored_base(const struct run *r, const struct spec *spec)
{
    if (resolve_takes_stored(r, spec))
        return stored_dtype(spec);
    return run_is_litgpt(r) ? r->prec.param : r->prec.compute;
}

static void say_taken(struct run *r, const struct stored *s)
{
    resolve_note(r, KEY_BASE_DTYPE,
                 "frozen weights in %s%s, as the file's quantization_config "
                 "has them, %s (--base-dtype%s)",
                 dtype_name(r->base_dtype),
                 r->double_quant ? ", their scales in 8 bits" : "", s->method,
                 s->twice ? ", --double-quant" : "");
    if (s->as == STORED_INT4 && s->group != GPTQ_GROUP)
        resolve_note(r, KEY_BASE_DTYPE,
                     "scales of int4 are taken as of %d weights each, the "
                     "file's groups are others",
                     GPTQ_GROUP);
    if (s->as == STORED_INT4 && str_is(STR("awq"), s->method))
        resolve_note(r, KEY_BASE_DTYPE,
                     "awq is taken as GPTQ's int4, which has an index more");
    if (s->left_out > 0)
        resolve_note(r, KEY_BASE_DTYPE,
                     "the file leaves modules unpacked, %" PRIu64
                     " names beside the head's: their weights are taken as "
                     "packed",
                     s->left_out);
}

void resolve_say_stored(struct run *r, const struct spec *spec)
{
    const struct stored *s = &spec->stored;
    if (s->as == STORED_PLAIN || (run_adapts(r) && r->given[KEY_BASE_DTYPE]))
        return;
    if (resolve_takes_stored(r, spec)) {
        say_taken(r, s);
        return;
    }
    const char *why =
        !run_is_hf(r)   ? "nothing here loads such weights"
        : run_adapts(r) ? "as base_dtype it is not modelled"
        : stored_dtype(spec) != DT_NONE
            ? "such weights are trained under adapters alone (--lora-rank)"
            : "it is the checkpoint's, not training's";
    resolve_note(r, KEY_BASE_DTYPE,
                 "the file's quantization_config (%s) is passed over, and "
                 "weights are taken in %s: %s",
                 s->method[0] != '\0' ? s->method : "no quant_method",
                 dtype_name(run_adapts(r) ? r->base_dtype : r->prec.param),
                 why);
}
