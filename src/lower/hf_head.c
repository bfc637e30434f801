/*
 * Owns what stands on the last layer of Hugging Face's classes, and the loss:
 * words (causal and masked), classes of sequences and tokens, spans. Refuses to
 * know what lies below.
 */
#include "lower/hf.h"

#include "base/banned.h"

void hf_hold(struct builder *b, const char *name, tensor_id x)
{
    build_op(b, OP_RELEASE, name, &x, 1);
}

void hf_linger(struct builder *b, tensor_id x)
{
    b->p->tensor[tensor_of(b, x)->storage].lingers = true;
}

void hf_outputs(struct builder *b, const char *name, tensor_id x)
{
    hf_hold(b, name, x);
    build_hold(b, x);
}

/* ---- words, the next one ---- */

/* Labels move one place to the left: padded, sliced, made contiguous. */
static tensor_id shifted_labels(struct builder *b)
{
    const struct shape longer = SHAPE(b->micro, DIM("s+1", b->sq.n + 1));
    const struct shape tokens = SHAPE(b->t);
    const tensor_id padded =
        build_copy_as(b, "labels padded", b->labels, &longer);
    if (b->micro.n == 1) /* contiguous as it is */
        return build_view(b, "labels shifted", padded, &tokens);
    return build_copy_as(b, "labels shifted", padded, &tokens);
}

/* Before 4.49 (loss/loss_utils.py, ForCausalLMLoss). */
static tensor_id shifted_words_loss(struct builder *b, tensor_id up)
{
    tensor_id labels;
    const tensor_id shifted = build_shifted_logits(b, up, &labels);
    const tensor_id loss = build_cross_entropy(b, "loss", shifted, labels);
    hf_hold(b, "shift_logits", shifted);
    hf_hold(b, "logits", up);
    return loss;
}

/* Before 4.46 models made their logits fp32 and gave them back so
 * (models/llama/modeling_llama.py, LlamaForCausalLM.forward in 4.37). */
static tensor_id fp32_words_loss(struct builder *b, tensor_id logits)
{
    const tensor_id up = build_cast(b, "logits fp32", logits, DT_FP32);
    const tensor_id loss = shifted_words_loss(b, up);
    build_hold(b, up);
    return loss;
}

/* transformers/loss/loss_utils.py, ForCausalLMLoss; encoders do not shift, and
 * an encoder-decoder shifts its input. */
tensor_id hf_words_loss(struct builder *b, tensor_id logits)
{
    if (b->run->fp32_logits)
        return fp32_words_loss(b, logits);
    if (b->spec->decoder_layers > 0) { /* logits as they are */
        return build_cross_entropy(b, "loss", logits, b->labels);
    }
    const tensor_id up = build_cast(b, "logits fp32", logits, DT_FP32);
    if (b->run->shift_logits && !b->spec->bidirectional)
        return shifted_words_loss(b, up);
    const tensor_id labels =
        b->spec->bidirectional
                || run_cuts_sequences(b->run) /* shifted with the data */
            ? b->labels
            : shifted_labels(b);
    return build_cross_entropy(b, "loss", up, labels);
}

/* transformers' Trainer autocasts over bf16 weights too (its bf16 flag), not
 * over fp16 ones, whose gradients its scaler refuses. */
static bool trainer_autocasts(const struct builder *b)
{
    const struct run *r = b->run;
    return r->framework == FW_HF && r->engine == ENGINE_DDP
           && (b->autocast || b->compute == DT_BF16);
}

/* Of Baichuan 2: the mean square of each row's largest logit. */
static tensor_id max_loss(struct builder *b, tensor_id shifted)
{
    tensor_id place;
    tensor_id most = build_topk(b, "max", shifted, b->one, &place);
    if (b->autocast || trainer_autocasts(b))
        most = build_cast(b, "max fp32", most, DT_FP32);
    const tensor_id square = build_pow(b, "softmax_normalizer", most);
    return build_scale(b, "max_z_loss", build_mean(b, "mean", square));
}

/* BaichuanForCausalLM's NormHead (Baichuan2-7B-Chat, modeling_baichuan.py):
 * F.normalize of the weight in each forward. Autocast takes the norm in fp32,
 * and so comes the quotient. */
static tensor_id normed_rows(struct builder *b, tensor_id weight)
{
    const struct tensor given = *tensor_of(b, weight);
    const bool wide = b->autocast || trainer_autocasts(b);
    const enum dtype dtype = wide ? DT_FP32 : given.dtype;
    const struct shape column = SHAPE(b->V, b->one);
    const struct shape shape = shape_of(b, weight);
    const uint64_t one = build_product(b, given.elems, dtype_size(dtype));
    const uint64_t two = build_product(b, 2, one);
    const tensor_id norms = build_tensor(b, "row norms", dtype, &column);
    struct op *op = build_op(b, OP_FUSED, "row norms", &weight, 1);
    op_result(b, op, norms);
    op->keep_out = 1;
    /* self / norm, and before a cast the gradient (FunctionsManual.cpp,
       norm_backward) */
    op->back_bytes = dtype == given.dtype ? one : two - given.bytes;
    const tensor_id in[] = { weight,
                             build_unary(b, OP_ADD, "row norms", norms) };
    const tensor_id normed = build_tensor(b, "norm_weight", dtype, &shape);
    op = build_op(b, OP_FUSED, "norm_weight", in, 2);
    op_result(b, op, normed);
    op->keep_in = 2;
    /* -grad, self / other, that / other and their product, before the weight's
       own gradient is there (div_tensor_other_grad) */
    op->back_bytes = build_product(b, 2, two) - given.bytes;
    return normed;
}

/* QWenLMHeadModel.forward (Qwen/Qwen-7B, modeling_qwen.py), and Baichuan's:
 * shifted, and the loss in the type of the logits, but that autocast runs
 * nll_loss in fp32. Under the Trainer accelerate then makes the logits that
 * come out fp32 (utils/operations.py, ConvertOutputsToFp32). */
static tensor_id qwen_loss(struct builder *b, tensor_id logits)
{
    tensor_id labels;
    const tensor_id shifted = build_shifted_logits(b, logits, &labels);
    const tensor_id beside =
        b->spec->head_norm ? max_loss(b, shifted) : shifted;
    tensor_id logp = build_unary(b, OP_LOG_SOFTMAX, "log-softmax", shifted);
    if (b->autocast || trainer_autocasts(b))
        logp = build_cast(b, "autocast", logp, DT_FP32);
    tensor_id loss = build_nll_loss(b, "loss", logp, labels);
    if (beside != shifted)
        loss = build_add(b, "loss + max_z_loss", loss, beside);
    hf_hold(b, "shift_logits", shifted);
    if (trainer_autocasts(b)) {
        const tensor_id out = build_cast(b, "outputs fp32", logits, DT_FP32);
        b->p->tensor[out].needs_grad = false;
    }
    return loss;
}

/* The code that comes with these weights casts, but InternLM's, and shifts in a
 * copy; Phi-3 small scales what it has cast, and fills in words that are none.
 * ChatGLM's rows lie position by position (ChatGLMForConditionalGeneration). */
static bool loss_is_remote(enum family family)
{
    static const enum family all[] = {
        FAM_GROK,    FAM_PHI3SMALL, FAM_CHATGLM,  FAM_INTERNLM,
        FAM_MINICPM, FAM_INTERNLM2, FAM_PHI_MSFT, FAM_DEEPSEEK,
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i] == family)
            return true;
    }
    return false;
}

static tensor_id remote_logits(struct builder *b, tensor_id logits)
{
    const enum family family = b->spec->family;
    if (family == FAM_INTERNLM)
        return logits;
    if (family == FAM_GROK)
        logits = build_scale(b, "logits scaled", logits);
    if (family == FAM_CHATGLM && b->micro.n > 1)
        logits = build_copy(b, "logits by sequence", logits);
    logits = build_cast(b, "logits fp32", logits, DT_FP32);
    if (family != FAM_PHI3SMALL)
        return logits;
    logits = build_scale(b, "logits scaled", logits);
    const struct shape words = SHAPE(b->V);
    const tensor_id dummies =
        build_buffer(b, "dummy_tokens_mask", DT_BOOL, &words);
    return build_where(b, "dummy words filled", dummies, logits);
}

static tensor_id remote_loss(struct builder *b, tensor_id logits)
{
    tensor_id labels;
    const tensor_id shifted = build_shifted_logits(b, logits, &labels);
    const tensor_id loss = build_cross_entropy(b, "loss", shifted, labels);
    hf_hold(b, "shift_logits", shifted);
    return loss;
}

/* Liger patches the model to its fused loss unless told not to. */
static bool loss_is_fused(const struct run *run)
{
    return run->loss == LOSS_FUSED
           || (run->impl == IMPL_HF_LIGER && run->loss == LOSS_STANDARD);
}

/* BART's final_logits_bias, a buffer, as wide as the weights. */
static tensor_id plus_buffer(struct builder *b, tensor_id logits)
{
    const struct shape shape = shape_of(b, logits), words = SHAPE(b->V);
    const tensor_id sum =
        build_tensor(b, "logits + final_logits_bias", b->param, &shape);
    build_state(b, "final_logits_bias", b->param, &words);
    op_result(b, build_op(b, OP_ADD, "final_logits_bias", &logits, 1), sum);
    return sum;
}

/* Where its words are tied T5 scales, and holds what it scaled
 * (T5Config.scale_decoder_outputs), mT5 in no case; MiniCPM always. */
static tensor_id scaled_output(struct builder *b, tensor_id x)
{
    const bool t5 = b->spec->relative_buckets > 0 && b->spec->tied
                    && b->spec->family != FAM_MT5;
    if (!t5 && b->spec->family != FAM_MINICPM3
        && b->spec->family != FAM_MINICPM)
        return x;
    return build_scale(b, "decoder output scaled", x);
}

static bool loss_is_own(enum family family)
{
    return family == FAM_QWEN || family == FAM_BAICHUAN;
}

static tensor_id standard_loss(struct builder *b, tensor_id x, tensor_id weight)
{
    const struct spec *m = b->spec;
    const tensor_id scaled = scaled_output(b, x);
    tensor_id last = scaled;
    if (m->residual_fp32) /* MambaForCausalLM.forward */
        last = build_cast(b, "as the weight", scaled, b->param);
    if (b->run->kbit_cast == KBIT_CAST_NORMS) /* autocast */
        last = build_cast(b, "as the head", last, b->compute);
    const tensor_id rows = m->head_norm ? normed_rows(b, weight) : weight;
    const tensor_id low =
        m->head_norm ? build_cast(b, "lm_head", rows, b->compute) : rows;
    const struct linear l =
        linear_of_head(b, "lm_head", hf_to_columns(b, last), low);
    tensor_id logits = hf_whole_logits(b, build_linear(b, &l));
    if (rows != weight)
        hf_hold(b, "norm_weight", rows);
    if (m->family == FAM_MAMBA || m->family == FAM_MAMBA2
        || m->family == FAM_NEMOTRON_H)
        logits = build_cast(b, "logits fp32", logits, DT_FP32);
    if (m->family == FAM_BART)
        logits = plus_buffer(b, logits);
    if (loss_is_remote(m->family))
        logits = remote_logits(b, logits);
    else if (m->logit_scale < 1.0 || m->logit_scale > 1.0)
        logits = build_scale(b, "logits scaled", logits);
    logits = build_logits_cap(b, logits);
    const tensor_id loss =
        b->run->loss == LOSS_XENTROPY
            ? build_cross_entropy_kernel(b, "loss", logits, b->labels)
        : loss_is_own(m->family)    ? qwen_loss(b, logits)
        : loss_is_remote(m->family) ? remote_loss(b, logits)
                                    : hf_words_loss(b, logits);
    hf_hold(b, "outputs.last_hidden_state", x);
    if (scaled != x)
        hf_hold(b, "hidden_states", scaled);
    if (!b->run->fp32_logits || loss_is_remote(m->family))
        hf_outputs(b, "outputs.logits", logits);
    return loss;
}

static tensor_id projected(struct builder *b, tensor_id x)
{
    if (b->e.n == b->h.n)
        return x;
    return build_linear(b,
                        &(struct linear){ .name = "project_out", /* OPT-350m */
                                          .x = x,
                                          .in = b->h,
                                          .out = b->e,
                                          .group = PG_HEAD,
                                          .lora = LORA_NAMELESS });
}

static tensor_id words(struct builder *b, tensor_id x)
{
    x = projected(b, x);
    const tensor_id weight = build_head_weight(b, "lm_head", b->e);
    tensor_id loss;
    if (loss_is_fused(b->run))
        loss = build_fused_cross_entropy(b, "loss", x, weight,
                                         fused_cross_entropy_chunk(b));
    else
        loss = standard_loss(b, x, weight);
    loss = hf_balance_loss(b, loss);
    return hf_mtp(b, x, weight, loss);
}

/* ---- products of a head ---- */

/* The last product of a model is what all-linear leaves out. */
static tensor_id dense(struct builder *b, const char *name, tensor_id x,
                       struct dim out, uint64_t lora)
{
    return build_linear(b, &(struct linear){ .name = name,
                                             .x = x,
                                             .in = b->h,
                                             .out = out,
                                             .group = PG_HEAD,
                                             .bias = true,
                                             .lora = lora });
}

/* hidden_states[:, 0] */
static tensor_id first_token(struct builder *b, tensor_id x)
{
    const struct shape one = SHAPE(b->micro, b->h);
    return build_view(b, "first token", x, &one);
}

static tensor_id drop(struct builder *b, tensor_id x)
{
    return build_dropout(b, "head dropout", x, b->run->head_dropout);
}

/* BertPooler; RobertaClassificationHead is the same after a dropout. */
static tensor_id pooled(struct builder *b, tensor_id x)
{
    const bool roberta = b->spec->family == FAM_ROBERTA;
    x = first_token(b, x);
    if (b->spec->family == FAM_DISTILBERT) {
        x = dense(b, "pre_classifier", x, b->h, LORA_NAMELESS);
        return build_activation(b, "relu", ACT_RELU, x);
    }
    if (roberta && b->spec->head == HEAD_SEQUENCE)
        x = drop(b, x);
    return build_unary(b, OP_TANH, "pooled",
                       dense(b, "pooler", x, b->h, LORA_NAMELESS));
}

/* ---- masked words ---- */

/* BertLMPredictionHead: the weight is the embedding's, and has a bias. The
 * logits go to the loss as they are. */
/* The class has a bias beside its decoder's own; tying makes them one. Untied,
 * nothing uses it (BertLMPredictionHead, RobertaLMHead). */
static void spare_bias(struct builder *b)
{
    if (b->spec->tied || b->spec->family == FAM_DISTILBERT)
        return;
    const bool in_vain = b->in_vain;
    b->in_vain = true;
    build_param(b, &(struct param){ .name = "bias",
                                    .of = "predictions",
                                    .group = PG_HEAD,
                                    .rows = b->V });
    b->in_vain = in_vain;
}

static tensor_id masked_words(struct builder *b, tensor_id x)
{
    spare_bias(b);
    tensor_id y = dense(b, "transform", x, b->h, LORA_NAMELESS);
    y = build_activation(b, "transform act", b->spec->act, y);
    y = hf_hidden_norm(b, "transform norm", y);
    const tensor_id weight = build_head_weight(b, "decoder", b->e);
    const struct linear l = linear_of_head(b, "decoder", y, weight);
    const tensor_id logits = build_linear(b, &l);
    const tensor_id loss = build_cross_entropy(b, "loss", logits, b->labels);
    hf_hold(b, "outputs.last_hidden_state", x);
    hf_outputs(b, "outputs.logits", logits);
    return loss;
}

/* BertForPreTraining: beside it, whether the second sentence follows. */
static tensor_id pretraining(struct builder *b, tensor_id x)
{
    const tensor_id first = pooled(b, x);
    const tensor_id loss = masked_words(b, x);
    const tensor_id pair =
        dense(b, "seq_relationship", first, DIM("2", 2), LORA_NAMELESS);
    const tensor_id next =
        build_cross_entropy(b, "next sentence loss", pair, b->labels);
    return build_add(b, "loss", loss, next);
}

/* ---- classes ---- */

/* No output embedding: all-linear leaves it out only where it is trained in full
 * (peft/tuners/tuners_utils.py, _maybe_include_all_linear_layers). */
static tensor_id classes(struct builder *b, tensor_id x)
{
    const struct dim labels = DIM("labels", b->spec->labels);
    const bool full = (b->run->lora_full & LORA_MASK(LORA_FULL_HEAD)) != 0;
    const tensor_id logits = dense(b, "classifier", drop(b, x), labels,
                                   full ? LORA_NEVER : LORA_NAMELESS);
    return build_cross_entropy(b, "loss", logits, b->labels);
}

/* ---- classes, of a decoder ---- */

static tensor_id scores(struct builder *b, tensor_id x, bool bias)
{
    const bool full = (b->run->lora_full & LORA_MASK(LORA_FULL_HEAD)) != 0;
    return build_linear(
        b, &(struct linear){ .name = "score",
                             .x = x,
                             .in = b->e,
                             .out = DIM("labels", b->spec->labels),
                             .group = PG_HEAD,
                             .bias = bias,
                             .lora = full ? LORA_NEVER : LORA_NAMELESS });
}

/* Cross entropy of scores as they are; squares, or logistic losses, which keep
 * them, in fp32 under autocast. */
static tensor_id class_loss(struct builder *b, tensor_id logits)
{
    if (b->spec->problem == PROBLEM_CLASS)
        return build_cross_entropy(b, "loss", logits, b->labels);
    return build_mean(b, "loss", build_pow(b, "loss", logits));
}

/* GenericForSequenceClassification (transformers/modeling_layers.py): scores of
 * all tokens, of which those of the last that is no padding count. Where these
 * are, two numbers each, is kept. */
static tensor_id last_token(struct builder *b, tensor_id x)
{
    const struct shape two = SHAPE(DIM("2*b", build_product(b, 2, b->micro.n)));
    const struct shape each = SHAPE(b->micro, DIM("labels", b->spec->labels));
    const tensor_id logits = scores(b, projected(b, x), false);
    const tensor_id places = build_copy_as(b, "last tokens", b->ids, &two);
    const tensor_id pooled =
        build_index(b, "pooled logits", logits, places, &each);
    const tensor_id loss = class_loss(b, pooled);
    hf_hold(b, "hidden_states", x);
    hf_hold(b, "logits", logits);
    hf_outputs(b, "outputs.logits", pooled);
    return loss;
}

/* GenericForTokenClassification; GPT2ForTokenClassification's loss takes scores as
 * they are. */
static tensor_id each_token(struct builder *b, tensor_id x)
{
    const tensor_id dropped = drop(b, x);
    const tensor_id logits = scores(b, dropped, true);
    const tensor_id up = b->spec->family == FAM_GPT2
                             ? logits
                             : build_cast(b, "logits fp32", logits, DT_FP32);
    const tensor_id loss = build_cross_entropy(b, "loss", up, b->labels);
    hf_hold(b, "outputs.last_hidden_state", x);
    hf_hold(b, "sequence_output", dropped);
    hf_outputs(b, "outputs.logits", logits);
    return loss;
}

/* BertForQuestionAnswering: a score for each token to be the first, one to be
 * the last; places are clamped to the sequence. */
static tensor_id span(struct builder *b, tensor_id x)
{
    const struct shape one = SHAPE(b->micro, b->sq), each = SHAPE(b->micro);
    if (b->spec->family == FAM_DISTILBERT)
        x = drop(b, x);
    const tensor_id logits = dense(b, "qa_outputs", x, DIM("2", 2), LORA_NEVER);
    tensor_id side[2], loss[2];
    build_split(b, "start, end", logits, side,
                (const struct shape[]){ one, one }, 2);
    for (unsigned i = 0; i < 2; i++) {
        const tensor_id scores = build_copy(b, "scores", side[i]);
        const tensor_id place =
            build_copy_as(b, "position clamped", b->labels, &each);
        loss[i] = build_cross_entropy(b, "loss", scores, place);
    }
    return build_scale(b, "loss", build_add(b, "loss", loss[0], loss[1]));
}

/* ---- the head ---- */

/* Does x, fresh from the last layer, go through the class's final norm? */
static tensor_id normed(struct builder *b, tensor_id x)
{
    const enum head_kind head = b->spec->head;
    if (!b->spec->final_norm || head == HEAD_ONE || head == HEAD_STATES)
        return x;
    const tensor_id states = x;
    x = hf_hidden_norm(b, "final norm", x);
    hf_hold(b, "hidden_states", states);
    if (b->spec->relative_buckets == 0)
        return x;
    return build_dropout(b, "final dropout", x, b->run->hidden_dropout);
}

/* After the norm, the last of a model's forward. */
static tensor_id returned(struct builder *b, tensor_id normed, tensor_id x)
{
    const tensor_id none = TENSOR_NONE;
    if (normed != x)
        build_op(b, OP_RELEASE, "model's forward", &none, 1)->returns = true;
    return normed;
}

static tensor_id head_of(struct builder *b, tensor_id x)
{
    const bool encodes = b->spec->bidirectional;
    switch (b->spec->head) {
    case HEAD_LM: return words(b, x);
    case HEAD_MASKED_LM: return masked_words(b, x);
    case HEAD_PRETRAINING: return pretraining(b, x);
    case HEAD_POOLED: return build_mean(b, "loss", pooled(b, x));
    case HEAD_FIRST: return classes(b, first_token(b, x));
    case HEAD_ONE:
    case HEAD_STATES:
        return hf_deep_loss(b, build_mean(b, "loss", hf_states(b, x)));
    case HEAD_SEQUENCE:
        return encodes ? classes(b, pooled(b, x)) : last_token(b, x);
    case HEAD_TOKEN: return encodes ? classes(b, x) : each_token(b, x);
    case HEAD_SPAN: return span(b, x);
    case HEAD_NOISE: return hf_dit_head(b, x);
    }
    return x;
}

static void refuse_loss(struct builder *b, const char *what, const char *hint)
{
    memplan_error *e = build_refuse(b, what);
    if (b->run->impl == IMPL_HF) /* nor have others */
        diag_hint(e, "%s", hint);
}

/* Losses of other heads than words have one form. */
static void refuse_losses(struct builder *b)
{
    static const char standard[] = "use --loss standard";
    const bool own = loss_is_own(b->spec->family) || b->spec->decoder_layers > 0
                     || b->spec->bidirectional;
    if (b->run->fp32_logits && (b->spec->head != HEAD_LM || own))
        refuse_loss(b, "fp32_logits of this head", "leave --fp32-logits out");
    if (b->run->loss == LOSS_CHUNKED)
        refuse_loss(b, "chunked loss", standard);
    if (b->spec->head == HEAD_LM)
        return;
    if (b->run->loss == LOSS_FUSED)
        refuse_loss(b, "fused loss for this head", standard);
    if (b->run->loss == LOSS_XENTROPY)
        refuse_loss(b, "xentropy kernel for this head", standard);
}

void hf_head(struct builder *b)
{
    const tensor_id x = build_begin(b, BLOCK_HEAD, "head");
    refuse_losses(b);
    if (b->whole->joint == JOINT_CLIP)
        build_end(b, hf_contrast(b, x));
    else
        build_end(b, head_of(b, returned(b, normed(b, x), x)));
}
