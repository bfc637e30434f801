/*
 * Owns what PEFT trains over frozen weights, and which layers of a model are
 * frozen without it: defaults, the formats that follow, and what of it is
 * refused for good or not modelled. Refuses to know adapters of LoRA over
 * single kinds of models: resolve_check.c does.
 */
#include "spec/resolve.h"

#include "base/count.h"
#include "base/unit.h"
#include "spec/peft_names.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* ---- defaults ---- */

/* PEFT's own lists of modules, and of those whose input is what is multiplied
 * (TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING, ..._FEEDFORWARD_..., of
 * 0.21.2): one matrix for q, k and v has the place of keys. BERT's
 * "output.dense" is attention's, too. */
struct ia3_list {
    const char *type;
    unsigned on, inputs;
};

static struct ia3_list ia3_list(const struct spec *spec)
{
    enum {
        Q = 1 << LORA_Q,
        K = 1 << LORA_K,
        V = 1 << LORA_V,
        O = 1 << LORA_O,
        DOWN = 1 << LORA_DOWN
    };
    static const struct ia3_list lists[] = {
        { "gpt2", K | V | DOWN, DOWN },
        { "gpt_bigcode", K | V | DOWN, DOWN },
        { "bloom", K | V | DOWN, DOWN },
        { "gpt_neox", K | V | DOWN, DOWN },
        { "falcon", K | V | DOWN, DOWN },
        { "RefinedWeb", K | V | DOWN, DOWN },
        { "RefinedWebModel", K | V | DOWN, DOWN },
        { "llama", K | V | DOWN, DOWN },
        { "mistral", K | V | DOWN, DOWN },
        { "bert", K | V | O | DOWN, O | DOWN },
        { "roberta", K | V | O | DOWN, O | DOWN },
        { "opt", Q | K | DOWN, DOWN },
        { "gptj", Q | V | DOWN, DOWN },
        { "gpt_neo", Q | V | DOWN, DOWN },
        { "phi", Q | V | DOWN, DOWN },
        { "gemma", Q | V | DOWN, DOWN },
        { "gemma2", Q | V | DOWN, DOWN },
        { "gemma3_text", Q | V | DOWN, DOWN },
        { "qwen2", Q | V | DOWN, DOWN },
        { "qwen3", Q | V | DOWN, DOWN },
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        if (strcmp(spec->model_type, lists[i].type) == 0)
            return lists[i];
    return (struct ia3_list){ NULL, Q | V | DOWN, DOWN };
}

/* The same of LoRA without target_modules
 * (TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, 0.21.2); 0: it has none
 * for the model, and refuses. */
static uint64_t resolve_peft_list(const struct spec *spec)
{
    enum {
        Q = 1 << LORA_Q,
        V = 1 << LORA_V,
        QKV = Q | V | 1 << LORA_K,
        PHI = Q | V | 1 << LORA_UP | 1 << LORA_DOWN
    };
    static const struct {
        const char *type;
        unsigned on;
    } lists[] = {
        { "t5", Q | V },
        { "mt5", Q | V },
        { "bart", Q | V },
        { "opt", Q | V },
        { "gptj", Q | V },
        { "gpt_neo", Q | V },
        { "bert", Q | V },
        { "roberta", Q | V },
        { "xlm-roberta", Q | V },
        { "electra", Q | V },
        { "layoutlm", Q | V },
        { "llama", Q | V },
        { "llama4", Q | V },
        { "mistral", Q | V },
        { "mixtral", Q | V },
        { "stablelm", Q | V },
        { "gemma", Q | V },
        { "gemma2", Q | V },
        { "gemma3_text", Q | V },
        { "qwen2", Q | V },
        { "qwen3", Q | V },
        { "gpt2", QKV },
        { "gpt_bigcode", QKV },
        { "bloom", QKV },
        { "gpt_neox", QKV },
        { "chatglm", QKV },
        { "mpt", QKV },
        { "RefinedWebModel", QKV },
        { "RefinedWeb", QKV },
        { "falcon", QKV },
        { "codegen", QKV },
        { "phi", PHI },
        { "nemotron_h", QKV | 1 << LORA_O },
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        if (strcmp(spec->model_type, lists[i].type) == 0)
            return lists[i].on;
    return 0;
}

/* All linear layers, unless a PEFT file leaves it to PEFT; litgpt/finetune/
 * lora.py says queries and values. */
static uint64_t lora_targets(struct run *r, const struct spec *spec)
{
    char words[LORA_WORDS_MAX], text[ASSUMPTION_TEXT];
    if (run_is_litgpt(r))
        return resolve_count(r, KEY_LORA_TARGETS, 1 << LORA_Q | 1 << LORA_V);
    if (!r->setup.peft_list || r->given[KEY_LORA_TARGETS])
        return resolve_count(r, KEY_LORA_TARGETS,
                             UINT64_C(1) << LORA_ALL_LINEAR);
    const uint64_t on =
        resolve_count(r, KEY_LORA_TARGETS, resolve_peft_list(spec));
    str_format(text, sizeof(text),
               "adapters on %s, PEFT's list (--lora-targets)",
               lora_words(on, words));
    resolve_assume(r, KEY_LORA_TARGETS, "%s", text);
    return on;
}

/* Whether a file has them, and the layers are those that PEFT looks at. */
static bool are_named(const struct run *r)
{
    return r->setup.files > 0 && r->setup.said[KEY_LORA_TARGETS].entry != NULL
           && r->setup.peft_names != 0
           && (r->impl == IMPL_HF || r->impl == IMPL_HF_LIGER);
}

/* Names that a file hands to PEFT, and the model's class; 0: it has none, or
 * what the class calls its modules is not known. */
static uint64_t names_known(const struct run *r, const struct spec *spec)
{
    return are_named(r) ? peft_names_of(spec) : 0;
}

/* PEFT passes over names that the model has not, where it has others
 * (tuners/tuners_utils.py, inject_adapter). */
static void pass_over(struct run *r, const struct spec *spec)
{
    char names[PEFT_NAMES_TEXT];
    const uint64_t has = names_known(r, spec), asked = r->setup.peft_names;
    if (has == 0 || (asked & has) == 0)
        return;
    r->lora_targets = peft_names_words(asked & has, has);
    r->targets_apart = true;
    r->setup.v[KEY_LORA_TARGETS].n = r->lora_targets;
    if ((asked & ~has) != 0)
        resolve_note(r, KEY_LORA_TARGETS,
                     "'%s' %s of the file has no effect: the model has no "
                     "such module",
                     r->setup.said[KEY_LORA_TARGETS].entry,
                     peft_names_text(asked & ~has, names));
}

/* A pattern is of modules that there are (tuners/lora/model.py,
 * _create_and_replace: get_pattern_key). */
static void note_pattern(struct run *r, enum setup_key key, const char *entry,
                         uint64_t idle)
{
    char names[PEFT_NAMES_TEXT];
    if (idle != 0)
        resolve_note(r, key,
                     "'%s' %s of PEFT's file has no effect: no such module "
                     "has an adapter",
                     entry, peft_names_text(idle, names));
}

/* Ranks of names that have no adapter are nobody's. */
static void pass_over_patterns(struct run *r, const struct spec *spec)
{
    const uint64_t has = names_known(r, spec);
    const uint64_t on = has & r->setup.peft_names;
    if (on == 0)
        return;
    const uint64_t idle = peft_names_words(r->setup.peft_ranks & ~on, has)
                          & ~peft_names_words(r->setup.peft_ranks & on, has);
    for (unsigned i = 0; i <= LORA_DOWN; i++)
        if ((idle >> i & 1) != 0)
            r->setup.rank[i] = 0;
    note_pattern(r, KEY_RANK_PATTERN, "rank_pattern",
                 r->setup.peft_ranks & ~on);
    note_pattern(r, KEY_LORA_TARGETS, "alpha_pattern",
                 r->setup.peft_alphas & ~on);
}

/* The width of what an encoder of prompts gives. */
static uint64_t prompt_width(const struct run *r, const struct spec *s)
{
    if (r->peft == PEFT_PREFIX)
        return s->kv_heads * s->head_dim;
    return s->embed_dim == 0 ? s->hidden : s->embed_dim;
}

/* What methods beside LoRA have of their own. */
static void resolve_peft(struct run *r, const struct spec *spec)
{
    char words[LORA_WORDS_MAX], text[ASSUMPTION_TEXT];
    if (r->peft == PEFT_LORA)
        return;
    if (r->peft == PEFT_IA3) {
        const struct ia3_list list = ia3_list(spec);
        r->feedforward = resolve_count(r, KEY_FEEDFORWARD_MODULES, list.inputs);
        const uint64_t has = names_known(r, spec);
        if ((r->setup.peft_inputs & has) != 0) /* as target modules are */
            r->feedforward = peft_names_words(r->setup.peft_inputs & has, has);
        str_format(text, sizeof(text),
                   list.type != NULL
                       ? "vectors on %s, PEFT's list (--lora-targets)"
                       : "vectors on %s: PEFT has no list for the model "
                         "(--lora-targets)",
                   lora_words(r->lora_targets, words));
        resolve_assume(r, KEY_LORA_TARGETS, "%s", text);
        return;
    }
    r->virtual_tokens =
        resolve_count(r, KEY_NUM_VIRTUAL_TOKENS, VIRTUAL_TOKENS);
    if (r->peft == PEFT_PREFIX)
        r->prefix_projection = resolve_bool(r, KEY_PREFIX_PROJECTION, false);
    if (r->peft == PEFT_P_TUNING || r->prefix_projection)
        r->encoder_hidden =
            resolve_count(r, KEY_ENCODER_HIDDEN_SIZE, prompt_width(r, spec));
    resolve_assume(r, KEY_NUM_VIRTUAL_TOKENS,
                   "20 virtual tokens (--num-virtual-tokens)");
}

/* DeepSpeed casts whatever is in another type than fp16 or bf16, where that is
 * enabled, but under zero.Init, which stage 3 is taken to have (engine.py,
 * _cast_module_mixed_precision). */
static void cast_adapters(struct run *r)
{
    const enum dtype t = r->prec.param;
    if (r->engine != ENGINE_DEEPSPEED || r->zero == 3 || t == DT_FP32
        || r->lora_dtype == t)
        return;
    resolve_note(r, KEY_LORA_DTYPE,
                 "adapters are in %s: DeepSpeed casts them (--lora-dtype)",
                 dtype_name(t));
    r->lora_dtype = t;
    r->setup.v[KEY_LORA_DTYPE].n = t;
}

/* PEFT copies each module that it trains in full, a tied head apart from the
 * words; ensure_weight_tying makes one copy of both (lora/model.py,
 * _add_modules_to_save_to_tie). */
static void resolve_full(struct run *r, const struct spec *spec)
{
    const uint64_t ends =
        UINT64_C(1) << LORA_FULL_EMBED | UINT64_C(1) << LORA_FULL_HEAD;
    const bool tied = spec->tied && !run_is_litgpt(r);
    const bool asked =
        r->peft == PEFT_LORA && resolve_bool(r, KEY_ENSURE_WEIGHT_TYING, false);
    r->lora_full = r->given[KEY_LORA_FULL_MODULES]
                       ? r->setup.v[KEY_LORA_FULL_MODULES].n
                       : 0;
    r->ties_full = asked && tied && (r->lora_full & ends) != 0;
    if (asked && run_has_bridge_adapters(r))
        resolve_note(r, KEY_ENSURE_WEIGHT_TYING,
                     "'ensure_weight_tying' has no effect in Megatron's "
                     "layers: it is PEFT's");
    else if (asked && !r->ties_full)
        resolve_note(r, KEY_ENSURE_WEIGHT_TYING,
                     tied ? "ensure_weight_tying without embed or head among "
                            "lora_full_modules has no effect"
                          : "ensure_weight_tying: words and head are two "
                            "tables, which it leaves so");
    if (r->ties_full)
        r->lora_full |= ends;
    else if (tied && (r->lora_full & ends) != 0)
        resolve_note(r, KEY_LORA_FULL_MODULES,
                     r->given[KEY_ENSURE_WEIGHT_TYING]
                         ? "PEFT trains copies of the words' table, and unties "
                           "the head"
                         : "PEFT trains copies of the words' table, and unties "
                           "the head (--ensure-weight-tying)");
    r->setup.v[KEY_LORA_FULL_MODULES].n = r->lora_full;
}

/* What is not quantised of a quantised model. PEFT's
 * prepare_model_for_kbit_training casts it to fp32 over bitsandbytes' formats,
 * not over GPTQ; where the weights themselves are sharded it is not called
 * (trl's SFTTrainer). PEFT makes adapters in fp32 then: who has them in 16 bits
 * does without the call (fsdp_qlora's train.py, LitGPT), and so does torchtune.
 */
static enum kbit_cast kbit_cast(const struct run *r)
{
    const bool sharded = run_is_fsdp(r) || r->zero == 3;
    const bool none = r->base_dtype == DT_INT4 || sharded
                      || r->lora_dtype != DT_FP32 || r->impl == IMPL_TORCHTUNE;
    return none ? KBIT_CAST_NONE : KBIT_CAST_ALL;
}

static void say_adapters(struct run *r, const struct spec *spec)
{
    if (r->lora_rank > 0 && !r->setup.peft_list)
        resolve_assume(r, KEY_LORA_TARGETS,
                       run_is_litgpt(r)
                           ? "adapters on queries and values (--lora-targets)"
                       : run_has_bridge_adapters(r) && spec->kv_rank > 0
                           ? "adapters on linear_proj and MLPs, the names of "
                             "Megatron-Bridge's that there are "
                             "(--lora-targets)"
                           : "adapters on all linear layers (--lora-targets)");
    if (!resolve_takes_stored(r, spec))
        resolve_assume(r, KEY_BASE_DTYPE, "frozen weights in %s (--base-dtype)",
                       dtype_name(r->base_dtype));
}

/* With adapters the formats of `prec` are theirs: nothing else has gradients,
 * a master copy or optimizer states. */
static void train_adapters(struct run *r)
{
    if (r->lora_dtype == r->prec.param)
        return;

    r->prec.param = r->lora_dtype;
    if (!r->given[KEY_GRAD_DTYPE])
        r->prec.grad = r->lora_dtype;
    if (!r->given[KEY_REDUCE_DTYPE])
        r->prec.reduce = r->lora_dtype;
    if (!r->given[KEY_MASTER_DTYPE] && r->lora_dtype == DT_FP32)
        r->prec.master = DT_NONE;
    if (!r->given[KEY_OPTIMIZER_DTYPE] && r->prec.master == DT_NONE)
        r->prec.optim = resolve_moments(r->optimizer, r->lora_dtype);
    r->setup.v[KEY_GRAD_DTYPE].n = r->prec.grad;
    r->setup.v[KEY_REDUCE_DTYPE].n = r->prec.reduce;
    r->setup.v[KEY_MASTER_DTYPE].n = r->prec.master;
    r->setup.v[KEY_OPTIMIZER_DTYPE].n = r->prec.optim;
}

static void resolve_lora(struct run *r, const struct spec *spec)
{
    r->lora_rank = resolve_count(r, KEY_LORA_RANK, 0);
    r->peft = r->given[KEY_PEFT_TYPE]
                  ? (enum peft_type)r->setup.v[KEY_PEFT_TYPE].n
                  : PEFT_LORA;
    r->lora_dtype = r->prec.param;
    r->base_dtype = r->prec.param;
    if (!run_adapts(r))
        return;
    resolve_count(r, KEY_PEFT_TYPE, PEFT_LORA);
    if (r->peft == PEFT_LORA)
        r->lora_variant = (enum lora_variant)resolve_count(r, KEY_LORA_VARIANT,
                                                           LORA_VARIANT_LORA);
    if (r->peft == PEFT_IA3)
        r->lora_targets = resolve_count(r, KEY_LORA_TARGETS, ia3_list(spec).on);
    if (r->peft == PEFT_LORA)
        r->lora_targets = lora_targets(r, spec);
    pass_over(r, spec);
    pass_over_patterns(r, spec);
    r->some_layers = r->given[KEY_LAYERS_TO_TRANSFORM];
    resolve_peft(r, spec);
    resolve_full(r, spec);
    r->base_dtype =
        resolve_dtype(r, KEY_BASE_DTYPE, resolve_stored_base(r, spec));
    /* what makes prompts PEFT makes in fp32, whatever the model has; DeepSpeed
     * casts all of it (engine.py, _configure_distributed_model) */
    const bool kept = r->virtual_tokens > 0 && r->engine != ENGINE_DEEPSPEED;
    r->lora_dtype =
        resolve_dtype(r, KEY_LORA_DTYPE, kept ? DT_FP32 : r->prec.param);
    cast_adapters(r);
    r->double_quant =
        resolve_bool(r, KEY_DOUBLE_QUANT,
                     resolve_takes_stored(r, spec) && spec->stored.twice);
    r->gptq_kernel = GPTQ_CUDA_OLD;
    if (r->base_dtype == DT_INT4)
        r->gptq_kernel =
            (enum gptq_kernel)resolve_count(r, KEY_GPTQ_KERNEL, GPTQ_CUDA_OLD);
    r->linear_experts = resolve_bool(r, KEY_LINEAR_EXPERTS, false);
    r->kbit_cast = KBIT_CAST_NONE;
    if (dtype_is_quantised(r->base_dtype))
        r->kbit_cast =
            (enum kbit_cast)resolve_count(r, KEY_KBIT_CAST, kbit_cast(r));
    /* PEFT's default; LitGPT's is another (litgpt/finetune/lora.py) */
    if (r->peft == PEFT_LORA)
        r->lora_dropout =
            resolve_real(r, KEY_LORA_DROPOUT, run_is_litgpt(r) ? 0.05 : 0);
    say_adapters(r, spec);
    train_adapters(r);
}

/* Where only the last layers are trained, what is below them is not. */
static void resolve_freeze(struct run *r, const struct spec *spec)
{
    const bool top = r->given[KEY_FREEZE_TRAINABLE_LAYERS] && !run_adapts(r);
    const uint64_t layers = spec_blocks(spec);
    const uint64_t below = top ? UINT64_C(1) << FREEZE_EMBED : 0;
    if (top)
        r->frozen_layers =
            layers
            - min_u64(resolve_count(r, KEY_FREEZE_TRAINABLE_LAYERS, 0), layers);
    r->freeze = r->given[KEY_FREEZE] ? r->setup.v[KEY_FREEZE].n : below;
    r->stops = r->freeze != 0 || r->some_layers || r->frozen_layers > 0
               || run_prefixes(r);
    if (!top)
        return;
    resolve_count(r, KEY_FREEZE, below);
    resolve_assume(r, KEY_FREEZE,
                   "embeddings frozen, the final norm and the head trained "
                   "(--freeze)");
}

void resolve_adapters(struct run *r, const struct spec *spec)
{
    resolve_lora(r, spec);
    resolve_freeze(r, spec);
}

/* ---- checks ---- */

static const char *peft_name(const struct run *r)
{
    static const char *const name[] = {
#define PEFT_TEXT(id, text) text,
        PEFT_TYPE_MAP(PEFT_TEXT)
#undef PEFT_TEXT
    };
    return name[r->peft];
}

/* What such a key has where its method is not: what is echoed is read again. */
static bool is_off(const struct run *r, enum setup_key key)
{
    return (key == KEY_LORA_RANK || key == KEY_PREFIX_PROJECTION)
           && r->setup.v[key].n == 0;
}

/* Keys of one method beside another. */
static void check_keys(const struct run *r, struct diag *d)
{
    const unsigned lora = 1u << PEFT_LORA, ia3 = 1u << PEFT_IA3;
    const unsigned prompt = 1u << PEFT_PROMPT, encoder = 1u << PEFT_P_TUNING,
                   prefix = 1u << PEFT_PREFIX;
    const unsigned wide = encoder | (r->prefix_projection ? prefix : 0);
    const struct {
        enum setup_key key;
        unsigned of;
        const char *what, *hint;
    } keys[] = {
        { KEY_LORA_RANK, lora, "peft_type lora", "leave it out" },
        { KEY_LORA_VARIANT, lora, "peft_type lora", "leave it out" },
        { KEY_LORA_DROPOUT, lora, "peft_type lora", "leave it out" },
        { KEY_LAYERS_TO_TRANSFORM, lora, "peft_type lora", "leave it out" },
        { KEY_RANK_PATTERN, lora, "peft_type lora", "leave it out" },
        { KEY_LORA_TARGETS, lora | ia3, "peft_type lora or ia3",
          "leave it out" },
        { KEY_LORA_FULL_MODULES, lora | ia3, "peft_type lora or ia3",
          "leave it out" },
        { KEY_ENSURE_WEIGHT_TYING, lora, "peft_type lora", "leave it out" },
        { KEY_FEEDFORWARD_MODULES, ia3, "peft_type ia3",
          "add --peft-type ia3" },
        { KEY_NUM_VIRTUAL_TOKENS, prompt | encoder | prefix,
          "peft_type prompt-tuning, p-tuning or prefix-tuning",
          "add --peft-type prompt-tuning" },
        { KEY_PREFIX_PROJECTION, prefix, "peft_type prefix-tuning",
          "add --peft-type prefix-tuning" },
        { KEY_ENCODER_HIDDEN_SIZE, wide,
          "peft_type p-tuning, or prefix_projection",
          run_prefixes(r) ? "add --prefix-projection true"
                          : "add --peft-type p-tuning" },
    };
    const unsigned is = 1u << r->peft;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (r->given[keys[i].key] && (keys[i].of & is) == 0
            && !is_off(r, keys[i].key))
            resolve_pointless(d, keys[i].key, keys[i].what, keys[i].hint);
}

static void refuse(struct diag *d, const struct run *r, const char *what,
                   const char *hint)
{
    memplan_error *e =
        setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_PEFT_TYPE,
                    "peft_type '%s' %s is not modelled", peft_name(r), what);
    diag_hint(e, "%s", hint);
}

/* Where another method than LoRA lies over a model. */
static void check_where(const struct run *r, struct diag *d)
{
    const bool sharded = r->zero == 3 || (run_is_fsdp(r) && r->zero != 0);
    if (run_is_litgpt(r))
        refuse(d, r, "with LitGPT's layers",
               r->means_litgpt ? "use --loss standard"
                               : "use --implementation hf");
    else if (r->impl == IMPL_HF_LIGER)
        refuse(d, r, "with Liger's kernels", "use --implementation hf");
    else if (r->impl != IMPL_HF)
        refuse(d, r, "outside Hugging Face's layers",
               "leave it out, or use --framework hf or deepspeed");
    else if (r->tp > 1 || r->cp > 1 || r->pp > 1)
        refuse(d, r, "with tp, cp or pp", "use --tp 1, --cp 1 and --pp 1");
    else if (sharded)
        refuse(d, r, "over sharded weights",
               run_is_fsdp(r) ? "use --framework deepspeed --zero 2, or hf"
                              : "use --zero 2, 1 or 0");
}

static void check_ia3(const struct run *r, const struct spec *s, struct diag *d)
{
    const char *const hint = "use --peft-type lora --lora-rank 16";
    if (s->experts > 0 || s->mixer != MIX_ATTENTION)
        refuse(d, r, "of a model with experts, or a state", hint);
    else if (s->vision != NULL || s->decoder_layers > 0)
        refuse(d, r, "of a model of two stacks", hint);
    else if (r->base_dtype == DT_NF4 || r->base_dtype == DT_FP4
             || r->base_dtype == DT_INT8 || r->base_dtype == DT_INT4)
        refuse(d, r, "over quantised weights", "use --base-dtype bf16");
}

/* Classes that come with their weights, and such that PEFT has not the shapes
 * of keys for (its _prepare_prompt_learning_config): MPT's heads have another
 * name, Falcon's keys fewer heads than it takes them to have. */
static bool is_apart(const struct spec *s)
{
    static const enum family some[] = {
        FAM_QWEN,     FAM_BAICHUAN,  FAM_CHATGLM,  FAM_INTERNLM,
        FAM_PHI_MSFT, FAM_PHI3SMALL, FAM_MINICPM3, FAM_GROK,
        FAM_LLAMA4,   FAM_DBRX,      FAM_MPT,
    };
    return s->family == FAM_FALCON ? s->kv_heads != s->heads
                                   : IS_AMONG(s->family, some);
}

/* Of the classes whose attention takes a cache's keys and values in one way, of
 * one shape in all layers. */
static void check_prefix(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    const char *const hint = "use --peft-type prompt-tuning";
    const bool slides = s->sliding_layers > 0
                        && s->sliding_window < r->seq_len + r->virtual_tokens;
    if (s->mixer != MIX_ATTENTION || s->kv_rank > 0)
        refuse(d, r, "of a model with a state, or latent attention", hint);
    else if (slides)
        refuse(d, r, "of a model with a window", hint);
    else if (is_apart(s))
        refuse(d, r, "of this model's class", hint);
    else if (r->recompute != RECOMP_NONE)
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_RECOMPUTE,
                              "PEFT refuses gradient checkpointing beside "
                              "prefix-tuning"),
                  "leave it out, or use --peft-type prompt-tuning");
}

/* Of models that words go into, and come out of. */
static void check_prompts(const struct run *r, const struct spec *s,
                          struct diag *d)
{
    const char *const hint = "use --peft-type lora --lora-rank 16";
    if (s->decoder_layers > 0 || s->bidirectional || s->vision != NULL
        || s->image > 0 || s->mel_bins > 0 || s->head != HEAD_LM)
        refuse(d, r, "of a model that is no causal language model", hint);
    else if (r->loss != LOSS_STANDARD && !run_is_litgpt(r))
        refuse(d, r, "with a fused loss", "use --loss standard");
    if (run_prefixes(r) && d->status == MEMPLAN_OK)
        check_prefix(r, s, d);
}

static void check_layers(const struct run *r, const struct spec *s,
                         struct diag *d)
{
    const uint64_t all = UINT64_C(1) << LORA_ALL_LINEAR;
    memplan_error *e;
    if (!r->some_layers)
        return;
    if (s->vision != NULL || s->decoder_layers > 0 || r->impl != IMPL_HF) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_LAYERS_TO_TRANSFORM,
                        "layers_to_transform outside Hugging Face's models of "
                        "one stack is not modelled");
        diag_hint(e, "leave it out");
    } else if ((r->lora_targets & all) != 0) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_LAYERS_TO_TRANSFORM,
                        "PEFT refuses layers_to_transform beside all-linear");
        diag_hint(e, "use --lora-targets q,k,v,o,gate,up,down");
    }
    for (uint64_t i = s->layers; i < SETUP_LIST_MAX; i++)
        if (run_adapts_layer(r, i)) {
            e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_LAYERS_TO_TRANSFORM,
                            "layers_to_transform has %" PRIu64
                            ", and the model %" PRIu64 " layer%s",
                            i, s->layers, unit_s((double)s->layers));
            diag_hint(e, "use 0 to %" PRIu64, s->layers - 1);
            return;
        }
}

static void check_ranks(const struct run *r, const struct spec *s,
                        struct diag *d)
{
    if (!r->given[KEY_RANK_PATTERN] || r->peft != PEFT_LORA)
        return;
    if (s->experts == 0 && r->impl == IMPL_HF && s->vision == NULL)
        return;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_UNSUPPORTED, KEY_RANK_PATTERN,
        "rank_pattern outside Hugging Face's layers, or of a model with "
        "experts or two parts, is not modelled");
    diag_hint(e, "leave it out");
}

static void check_open(const struct run *r, const struct spec *s,
                       struct diag *d)
{
    memplan_error *e;
    if (!r->given[KEY_FREEZE_TRAINABLE_LAYERS])
        return;
    const uint64_t asked = r->setup.v[KEY_FREEZE_TRAINABLE_LAYERS].n;
    if (run_adapts(r)) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_FREEZE_TRAINABLE_LAYERS,
                        "freeze_trainable_layers beside adapters, which freeze "
                        "all layers");
        diag_hint(e, "leave it out, or leave lora_rank out");
    } else if (s->vision != NULL || s->decoder_layers > 0 || spec_is_convnet(s)
               || r->impl != IMPL_HF) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_FREEZE_TRAINABLE_LAYERS,
                        "freeze_trainable_layers outside Hugging Face's models "
                        "of one stack is not modelled");
        diag_hint(e, "leave it out");
    } else if (asked > s->layers) {
        e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_FREEZE_TRAINABLE_LAYERS,
                        "freeze_trainable_layers %" PRIu64
                        " of a model of %" PRIu64 " layer%s",
                        asked, s->layers, unit_s((double)s->layers));
        diag_hint(e, "use 0 to %" PRIu64, s->layers);
    } else if (r->pp > 1) {
        e = setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_FREEZE_TRAINABLE_LAYERS,
                        "freeze_trainable_layers with pp is not modelled");
        diag_hint(e, "leave pp out");
    }
}

static void other_model(struct diag *d, const char *entry, uint64_t said,
                        uint64_t is)
{
    memplan_error *e = setup_error(d, MEMPLAN_E_CONFLICT, KEY_PEFT_TYPE,
                                   "'%s' of PEFT's file is %" PRIu64
                                   ", this model's is %" PRIu64,
                                   entry, said, is);
    diag_hint(e,
              "give the model that the file was made for, or leave "
              "'%s' out: PEFT fills it in",
              entry);
}

/* What PEFT has written of the model that prompts were made for: its own keys'
 * and values' width for prefixes (_prepare_prompt_learning_config). */
static void check_made_for(const struct run *r, const struct spec *s,
                           struct diag *d)
{
    const struct setup *said = &r->setup;
    const uint64_t own = s->embed_dim == 0 ? s->hidden : s->embed_dim;
    const bool prefix = r->peft == PEFT_PREFIX;
    const uint64_t heads = prefix ? s->kv_heads : s->heads;
    const uint64_t width = prefix ? s->kv_heads * s->head_dim : s->hidden;
    if (said->peft_layers != 0 && said->peft_layers != s->layers)
        other_model(d, "num_layers", said->peft_layers, s->layers);
    if (said->peft_heads != 0 && said->peft_heads != heads
        && said->peft_heads != s->heads)
        other_model(d, "num_attention_heads", said->peft_heads, heads);
    if (said->peft_width != 0 && said->peft_width != width
        && said->peft_width != own && said->peft_width != s->hidden)
        other_model(d, "token_dim", said->peft_width, width);
}

/* A file that was made for a model with other names, which PEFT refuses. */
static void check_names(const struct run *r, const struct spec *s,
                        struct diag *d)
{
    char asked[PEFT_NAMES_TEXT], has[PEFT_NAMES_TEXT];
    const uint64_t names = names_known(r, s);
    const uint64_t vague = r->setup.peft_names & peft_names_vague();
    if (names == 0 && vague != 0 && are_named(r) && run_adapts(r))
        diag_hint(setup_error(d, MEMPLAN_E_UNSUPPORTED, KEY_LORA_TARGETS,
                              "which matrices of a '%.40s' model %s are is not "
                              "known",
                              s->model_type, peft_names_text(vague, asked)),
                  "write their own words: --lora-targets q,k,v,o,up,down");
    if (names == 0 || !run_adapts(r) || (names & r->setup.peft_names) != 0)
        return;
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_LORA_TARGETS,
                    "target modules %s not found in the '%.40s' model",
                    peft_names_text(r->setup.peft_names, asked), s->model_type);
    diag_hint(e, "it has %s: use some of these, or \"all-linear\"",
              peft_names_text(names, has));
}

void resolve_check_adapters(const struct run *r, const struct spec *s,
                            struct diag *d)
{
    check_keys(r, d);
    check_names(r, s, d);
    if (r->peft == PEFT_LORA && run_adapts(r) && r->lora_targets == 0)
        diag_hint(setup_error(d, MEMPLAN_E_CONFLICT, KEY_LORA_TARGETS,
                              "without target_modules PEFT adapts a list of "
                              "its own, and none is known of model_type '%s'",
                              s->model_type),
                  "write target_modules, or add --lora-targets q,v");
    check_layers(r, s, d);
    check_ranks(r, s, d);
    check_open(r, s, d);
    if (r->peft == PEFT_LORA)
        return;
    check_where(r, d);
    if (r->peft == PEFT_IA3)
        check_ia3(r, s, d);
    else {
        check_prompts(r, s, d);
        check_made_for(r, s, d);
    }
}
