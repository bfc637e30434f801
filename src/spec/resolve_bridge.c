/*
 * Owns what adapters in Megatron's layers cannot be, as Megatron-Bridge has
 * them (src/megatron/bridge/peft at 067f987d), and which models they are not
 * modelled of. Changes nothing. [docs/method.md eq. bridge-lora]
 */
#include "spec/resolve.h"

#include <inttypes.h>

#include "base/banned.h"

enum {
    QKV = 1 << LORA_Q | 1 << LORA_K | 1 << LORA_V,
    FC1 = 1 << LORA_GATE | 1 << LORA_UP,
    MLP = FC1 | 1 << LORA_DOWN
};

static bool has_all(const struct run *r)
{
    return (r->lora_targets >> LORA_ALL_LINEAR & 1) != 0;
}

static bool adapts_any(const struct run *r, uint64_t words)
{
    return has_all(r) || (r->lora_targets & words) != 0;
}

/* ---- models ---- */

static void refuse_model(const struct run *r, struct diag *d, const char *what)
{
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_LORA_RANK,
                    "adapters in Megatron's layers of a model with %s are not "
                    "modelled yet",
                    what);
    resolve_hint_adapters(r, e);
}

/* Latent attention has linears of other names, and linear_proj. Experts in
 * parts send their adapters' results around, of padded rows. */
static void check_model(const struct run *r, const struct spec *s,
                        struct diag *d)
{
    if (s->decoder_layers > 0 || s->bidirectional)
        refuse_model(r, d, "an encoder");
    else if (s->mtp_layers > 0)
        refuse_model(r, d, "multi-token prediction");
    else if (s->experts > 0 && r->etp > 1 && adapts_any(r, MLP))
        diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_ETP,
                              "etp %" PRIu64 " beside adapters of experts is "
                              "not modelled yet",
                              r->etp),
                  "use --etp 1");
    else if (s->kv_rank > 0 && (r->lora_targets & QKV) != 0)
        diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_LORA_TARGETS,
                              "adapters of latent attention's queries, keys "
                              "and values are not modelled in Megatron's "
                              "layers: there is no linear_qkv"),
                  "use --lora-targets o,gate,up,down");
}

/* ---- linears ---- */

/* As the option takes a list. */
static void drop_spaces(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++)
        if (*from != ' ')
            *to++ = *from;
    *to = '\0';
}

/* Of words that name one matrix all or none. */
static void check_one_matrix(const struct run *r, struct diag *d,
                             uint64_t words, const char *names,
                             const char *matrix)
{
    const uint64_t on = r->lora_targets & words;
    char all[LORA_WORDS_MAX];
    if (has_all(r) || on == 0 || on == words)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_LORA_TARGETS,
                    "%s are one matrix of Megatron's layers, %s, with one "
                    "adapter",
                    names, matrix);
    lora_words(r->lora_targets | words, all);
    drop_spaces(all);
    diag_hint(e, "use --lora-targets %s", all);
}

/* linear_in of a column-parallel linear is cut by rows of the rank. */
static void check_rank(const struct run *r, struct diag *d)
{
    if (!adapts_any(r, QKV | FC1) || r->lora_rank % r->tp == 0)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_LORA_RANK,
                    "lora_rank %" PRIu64 " does not split over tp %" PRIu64
                    ", as Megatron-Bridge's linear_in does",
                    r->lora_rank, r->tp);
    diag_hint(e, "use --lora-rank %" PRIu64 ", or a multiple of it", r->tp);
}

/* ---- formats ---- */

/* Both linears are made, and cast, as the model's configuration says. */
static void check_type(const struct run *r, struct diag *d, enum setup_key key,
                       enum dtype is, const char *what)
{
    const enum dtype model = r->prec.compute;
    if (is == model)
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, key,
        "%s '%s': Megatron-Bridge has %s in the model's type, %s",
        setup_field(key)->key, dtype_name(is), what, dtype_name(model));
    diag_hint(e, "use --%s %s, or --framework hf",
              key == KEY_LORA_DTYPE ? "lora-dtype" : "base-dtype",
              dtype_name(model));
    resolve_hint_whole(r, e);
}

/* ---- schedules ---- */

/* linear_with_frozen_weight takes no buffer for it (core/tensor_parallel/
 * layers.py). */
static void check_schedule(const struct run *r, struct diag *d)
{
    if (r->deferred_wgrads > 0)
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_DEFER_EMBEDDING_WGRAD,
                              "defer_embedding_wgrad_compute beside adapters: "
                              "a frozen head has no gradient to put off"),
                  "leave it out");
    if (r->ep_overlap)
        diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_EP_OVERLAP,
                              "'ep_overlap' beside adapters is not modelled "
                              "yet"),
                  "leave it out");
}

void resolve_check_bridge(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    if (!run_has_bridge_adapters(r) || r->peft != PEFT_LORA)
        return;
    check_model(r, s, d);
    check_one_matrix(r, d, QKV, "q, k and v", "linear_qkv");
    if (s->gated_mlp)
        check_one_matrix(r, d, FC1, "gate and up", "linear_fc1");
    check_rank(r, d);
    check_type(r, d, KEY_LORA_DTYPE, r->lora_dtype, "adapters");
    check_type(r, d, KEY_BASE_DTYPE, r->base_dtype, "frozen weights");
    check_schedule(r, d);
    if (r->lora_full != 0)
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_LORA_FULL_MODULES,
                              "lora_full_modules: Megatron-Bridge trains "
                              "nothing beside adapters"),
                  "leave it out");
}
