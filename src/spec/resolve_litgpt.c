/*
 * Owns what LitGPT's scripts do unasked, said so that a user can say otherwise,
 * and what they refuse or cannot have. [litgpt 0.5.13: litgpt/finetune/lora.py,
 * finetune/full.py, pretrain.py]
 */
#include "spec/resolve.h"

#include <inttypes.h>

#include "base/banned.h"

/* Matrices of bitsandbytes' 4-bit formats. */
static bool in_4bit(const struct run *r)
{
    return run_adapts(r)
           && (r->base_dtype == DT_NF4 || r->base_dtype == DT_FP4);
}

static void say_loss(struct run *r)
{
    if (r->means_litgpt)
        return;
    if (r->loss == LOSS_CHUNKED)
        resolve_assume(r, KEY_LOSS,
                       "logits by pieces of 128 tokens, as LitGPT's scripts "
                       "for adapters have them (--loss)");
    else if (r->shift_logits)
        resolve_assume(r, KEY_SHIFT_LOGITS,
                       "logits are shifted, as LitGPT's finetune/full.py does; "
                       "pretrain.py shifts labels (--shift-logits)");
}

void resolve_say_litgpt(struct run *r)
{
    if (!run_is_litgpt(r))
        return;
    say_loss(r);
    if (r->lora_rank > 0 && r->lora_dropout > 0)
        resolve_assume(r, KEY_LORA_DROPOUT,
                       "adapters' dropout %g, as LitGPT's script has it "
                       "(--lora-dropout)",
                       r->lora_dropout);
    if (in_4bit(r))
        resolve_note(r, KEY_COUNT,
                     "bitsandbytes before 0.44, as LitGPT's published runs "
                     "had: inputs of 4-bit products stay until the loop has "
                     "the next logits");
}

/* A layer runs whole on one rank. */
static void check_degrees(const struct run *r, struct diag *d)
{
    static const enum setup_key keys[] = { KEY_TP, KEY_PP, KEY_CP, KEY_EP };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (r->setup.v[keys[i]].n > 1)
            diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, keys[i],
                                  "%s %" PRIu64 " with implementation "
                                  "'litgpt' is not modelled yet",
                                  setup_field(keys[i])->key,
                                  r->setup.v[keys[i]].n),
                      "leave it out: a layer of LitGPT's runs whole");
}

/* finetune/lora.py, setup() */
static void check_4bit(const struct run *r, struct diag *d)
{
    if (!in_4bit(r))
        return;
    char buf[RESOLVE_TEXT_MAX];
    if (r->prec.autocast)
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_BASE_DTYPE,
                              "base_dtype '%s' with precision '%s': LitGPT "
                              "stops, \"Quantization and mixed precision is "
                              "not supported.\"",
                              dtype_name(r->base_dtype),
                              resolve_text(r, KEY_PRECISION, buf)),
                  "add --precision bf16");
    if (r->gpus > 1)
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_BASE_DTYPE,
                              "base_dtype '%s' on %" PRIu64 " GPUs: LitGPT "
                              "stops, \"Quantization is currently not "
                              "supported for multi-GPU training.\"",
                              dtype_name(r->base_dtype), r->gpus),
                  "use --gpus 1, or leave it out");
}

void resolve_check_litgpt(const struct run *r, struct diag *d)
{
    if (!run_is_litgpt(r))
        return;
    check_degrees(r, d);
    check_4bit(r, d);
}
