/*
 * What a model is, whatever vocabulary its file used: the decoded, defaulted
 * and checked specification. spec_import.c fills it from JSON through a table
 * of families and fields; nothing below src/spec reads JSON again.
 */
#ifndef MEMPLAN_SPEC_SPEC_H
#define MEMPLAN_SPEC_SPEC_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"

/* id, model_type as Hugging Face writes it */
#define FAMILY_MAP(X)                                                          \
    X(DECODER, "decoder")                                                      \
    X(ENCODER, "encoder")                                                      \
    X(ENCODER_DECODER, "encoder-decoder")                                      \
    X(LLAMA, "llama")                                                          \
    X(MISTRAL, "mistral")                                                      \
    X(QWEN, "qwen")                                                            \
    X(QWEN2, "qwen2")                                                          \
    X(QWEN3, "qwen3")                                                          \
    X(QWEN2_MOE, "qwen2_moe")                                                  \
    X(QWEN3_MOE, "qwen3_moe")                                                  \
    X(GEMMA, "gemma")                                                          \
    X(GEMMA2, "gemma2")                                                        \
    X(PHI3, "phi3")                                                            \
    X(GPT2, "gpt2")                                                            \
    X(GPT_NEO, "gpt_neo")                                                      \
    X(GPTJ, "gptj")                                                            \
    X(GPT_NEOX, "gpt_neox")                                                    \
    X(OPT, "opt")                                                              \
    X(BLOOM, "bloom")                                                          \
    X(FALCON, "falcon")                                                        \
    X(MPT, "mpt")                                                              \
    X(STARCODER2, "starcoder2")                                                \
    X(GPT_BIGCODE, "gpt_bigcode")                                              \
    X(STABLELM, "stablelm")                                                    \
    X(OLMO, "olmo")                                                            \
    X(OLMO2, "olmo2")                                                          \
    X(COHERE, "cohere")                                                        \
    X(MIXTRAL, "mixtral")                                                      \
    X(OLMOE, "olmoe")                                                          \
    X(GRANITEMOE, "granitemoe")                                                \
    X(PHIMOE, "phimoe")                                                        \
    X(DBRX, "dbrx")                                                            \
    X(GPT_OSS, "gpt_oss")                                                      \
    X(MAMBA, "mamba")                                                          \
    X(MAMBA2, "mamba2")                                                        \
    X(JAMBA, "jamba")                                                          \
    X(QWEN3_NEXT, "qwen3_next")                                                \
    X(QWEN3_5, "qwen3_5_text")                                                 \
    X(QWEN3_5_MOE, "qwen3_5_moe_text")                                         \
    X(DEEPSEEK, "deepseek")                                                    \
    X(DEEPSEEK_V2, "deepseek_v2")                                              \
    X(DEEPSEEK_V3, "deepseek_v3")                                              \
    X(PHI, "phi")                                                              \
    X(PHI_MSFT, "phi-msft")                                                    \
    X(CHATGLM, "chatglm")                                                      \
    X(BAICHUAN, "baichuan")                                                    \
    X(INTERNLM, "internlm")                                                    \
    X(INTERNLM2, "internlm2")                                                  \
    X(MINICPM, "minicpm")                                                      \
    X(GLM4, "glm4")                                                            \
    X(GLM4_MOE, "glm4_moe")                                                    \
    X(SMOLLM3, "smollm3")                                                      \
    X(GRANITE, "granite")                                                      \
    X(GLM, "glm")                                                              \
    X(SEED_OSS, "seed_oss")                                                    \
    X(MINISTRAL, "ministral")                                                  \
    X(HUNYUAN, "hunyuan_v1_dense")                                             \
    X(ERNIE, "ernie4_5")                                                       \
    X(ERNIE_MOE, "ernie4_5_moe")                                               \
    X(DOTS1, "dots1")                                                          \
    X(NEMOTRON, "nemotron")                                                    \
    X(OLMO3, "olmo3")                                                          \
    X(EXAONE4, "exaone4")                                                      \
    X(COHERE2, "cohere2")                                                      \
    X(GEMMA3, "gemma3_text")                                                   \
    X(MINICPM3, "minicpm3")                                                    \
    X(DEEPSEEK_V32, "deepseek_v32")                                            \
    X(LLAMA4, "llama4_text")                                                   \
    X(GROK, "grok-1")                                                          \
    X(PHI3SMALL, "phi3small")                                                  \
    X(QWEN2_VL, "qwen2_vl_text")                                               \
    X(QWEN2_5_VL, "qwen2_5_vl_text")                                           \
    X(QWEN3_VL, "qwen3_vl_text")                                               \
    X(QWEN3_VL_MOE, "qwen3_vl_moe_text")                                       \
    X(BERT, "bert")                                                            \
    X(ROBERTA, "roberta")                                                      \
    X(DISTILBERT, "distilbert")                                                \
    X(ARCEE, "arcee")                                                          \
    X(HELIUM, "helium")                                                        \
    X(INTERNLM3, "internlm3")                                                  \
    X(MINISTRAL3, "ministral3")                                                \
    X(CWM, "cwm")                                                              \
    X(JAIS2, "jais2")                                                          \
    X(HYPERCLOVAX, "hyperclovax")                                              \
    X(YOUTU, "youtu")                                                          \
    X(MINIMAX_M2, "minimax_m2")                                                \
    X(SOLAR_OPEN, "solar_open")                                                \
    X(GLM4_MOE_LITE, "glm4_moe_lite")                                          \
    X(FLEX_OLMO, "flex_olmo")                                                  \
    X(EXAONE_MOE, "exaone_moe")                                                \
    X(VAULTGEMMA, "vaultgemma")                                                \
    X(GRANITEMOES, "granitemoeshared")                                         \
    X(GRANITE_HYB, "granitemoehybrid")                                         \
    X(BAMBA, "bamba")                                                          \
    X(NEMOTRON_H, "nemotron_h")                                                \
    X(FALCON_H1, "falcon_h1")                                                  \
    X(LFM2, "lfm2")                                                            \
    X(LFM2_MOE, "lfm2_moe")                                                    \
    X(T5, "t5")                                                                \
    X(MT5, "mt5")                                                              \
    X(UMT5, "umt5")                                                            \
    X(BART, "bart")                                                            \
    X(WHISPER, "whisper")                                                      \
    X(DIT, "dit")                                                              \
    X(DIT_DIFFUSERS, "DiTTransformer2DModel")                                  \
    X(CONVNET, "convnet")                                                      \
    X(VIT, "vit")                                                              \
    X(LLAVA_TEXT, "llava_text")                                                \
    X(CLIP_TEXT, "clip_text_model")                                            \
    X(CLIP_VISION, "clip_vision_model")                                        \
    X(SIGLIP_VISION, "siglip_vision_model")                                    \
    X(LLAMA4_VISION, "llama4_vision_model")                                    \
    X(QWEN2_VISION, "qwen2_vl_vision")                                         \
    X(QWEN2_5_VISION, "qwen2_5_vl_vision")                                     \
    X(QWEN3_VISION, "qwen3_vl_vision")

enum family {
#define FAMILY_ENUM(id, text) FAM_##id,
    FAMILY_MAP(FAMILY_ENUM)
#undef FAMILY_ENUM
        FAM_COUNT
};

static inline bool family_is_among(enum family family, const enum family *some,
                                   size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (some[i] == family)
            return true;
    }
    return false;
}
#define IS_AMONG(family, some)                                                 \
    family_is_among((family), (some), sizeof(some) / sizeof((some)[0]))

/* Of images alone, and part of other models. */
static inline bool family_is_vision(enum family family)
{
    return family == FAM_CLIP_VISION || family == FAM_SIGLIP_VISION
           || family == FAM_LLAMA4_VISION || family == FAM_QWEN2_VISION
           || family == FAM_QWEN2_5_VISION || family == FAM_QWEN3_VISION;
}

static inline bool family_is_t5(enum family family)
{
    return family == FAM_T5 || family == FAM_MT5 || family == FAM_UMT5;
}

/* Positions of words and patches have three axes (Qwen's vision models). */
static inline bool family_has_axes(enum family family)
{
    return family == FAM_QWEN2_VL || family == FAM_QWEN2_5_VL
           || family == FAM_QWEN3_VL || family == FAM_QWEN3_VL_MOE
           || family == FAM_QWEN3_5 || family == FAM_QWEN3_5_MOE
           || family == FAM_QWEN2_VISION || family == FAM_QWEN2_5_VISION
           || family == FAM_QWEN3_VISION;
}

/* Never a whole file: what part of one is called, if it is not said. */
static inline bool family_is_part(enum family family)
{
    return family_is_vision(family) || family == FAM_CLIP_TEXT
           || family == FAM_LLAVA_TEXT;
}

enum norm_kind {
    NORM_RMS,          /* weight */
    NORM_LAYER,        /* weight and bias */
    NORM_LAYER_NOBIAS, /* weight */
    NORM_LAYER_PLAIN   /* no parameters (OLMo 1) */
};

enum norm_place {
    PLACE_PRE,           /* before attention and MLP (most) */
    PLACE_POST,          /* after each, inside the residual (OLMo 2) */
    PLACE_BOTH,          /* before and after (Gemma 2) */
    PLACE_AFTER_RESIDUAL /* original transformer order (OPT-350m) */
};

enum activation {
    ACT_SILU,
    ACT_GELU,       /* erf: one kernel */
    ACT_GELU_TANH,  /* gelu_pytorch_tanh: one kernel */
    ACT_GELU_NEW,   /* written out in Python (GPT-2, GPT-J, GPT-Neo) */
    ACT_GELU_FAST,  /* written out likewise */
    ACT_GELU_BLOOM, /* BLOOM's autograd function */
    ACT_GELU_QUICK, /* x sigmoid(1.702 x), in three kernels (CLIP) */
    ACT_RELU,
    ACT_RELU2, /* squared */
    ACT_GEGELU /* of gate and up interleaved, clamped (Phi-3 small) */
};

enum position { POS_ROPE, POS_LEARNED, POS_ALIBI, POS_NONE };

enum qk_norm {
    QK_NONE,
    QK_PER_HEAD,  /* one weight of head_dim for all heads (Qwen 3) */
    QK_FULL,      /* over the whole width (OLMo 2) */
    QK_EACH_HEAD, /* a weight for every head (StableLM 2, Cohere) */
    QK_UNIT       /* per head, without a weight, after rotation (Llama 4) */
};

/* What stands on the last layer, and what the loss is of. */
enum head_kind {
    HEAD_LM,          /* words: the next one, or the one itself */
    HEAD_MASKED_LM,   /* the same after a product, activation and norm */
    HEAD_PRETRAINING, /* that, and whether two sentences follow one another */
    HEAD_POOLED,      /* nothing on the pooled first token */
    HEAD_FIRST,       /* a class, of the first token as it is */
    HEAD_ONE,         /* nothing on one normed token of each sequence (CLIP) */
    HEAD_STATES,      /* nothing on all of them (SigLIP's encoder) */
    HEAD_SEQUENCE,    /* a class a sequence, of the pooled first token; of a
                         decoder of its last one */
    HEAD_TOKEN,       /* a class a token */
    HEAD_SPAN,        /* first and last token of an answer */
    HEAD_NOISE        /* patches of the noise in an image (DiT) */
};

/* What a loss of classes is (transformers/loss/loss_utils.py,
 * ForSequenceClassificationLoss). */
enum problem {
    PROBLEM_CLASS, /* one of them: cross entropy */
    PROBLEM_OTHERS /* several, or numbers: a loss that keeps its scores */
};

enum router {
    ROUTER_SOFTMAX, /* softmax over all, then the chosen (Mixtral) */
    ROUTER_CHOSEN,  /* the chosen, then softmax over them (GPT-OSS) */
    ROUTER_SIGMOID, /* sigmoid, corrected by a bias, by groups (DeepSeek V3) */
    ROUTER_INPUT    /* sigmoid of the chosen, on the experts' input (Llama 4) */
};

/* What mixes the tokens of a layer. */
enum mixer {
    MIX_ATTENTION,
    MIX_MAMBA, /* selective state space (Gu and Dao 2023) */
    MIX_MAMBA2,
    MIX_DELTA, /* gated delta net (Yang et al. 2024) */
    MIX_CONV,  /* a short convolution between gates (LFM2) */
    MIX_NONE,  /* nothing: an MLP or experts alone (Nemotron-H) */
    MIXER_COUNT
};

/* Which layers have a thing: those that `listed` (one byte a layer) says, else
 * from `first` on every `every`-th, by the rest `at`; all where every is 0. */
struct pattern {
    uint64_t first, every, at;
    const uint8_t *listed; /* NULL: none */
};

static inline bool pattern_has(const struct pattern *p, uint64_t i)
{
    if (p->listed != NULL)
        return p->listed[i] != 0;
    return i >= p->first && (p->every == 0 || i % p->every == p->at);
}

/* All layers after that one have it, as it has. */
static inline bool pattern_settled(const struct pattern *p, uint64_t i)
{
    return p->listed == NULL && p->every <= 1 && i >= p->first;
}

/* Of every layer, from the first one on. */
static inline bool pattern_is_all(const struct pattern *p)
{
    return p->listed == NULL && p->first == 0 && p->every <= 1;
}

/* Layers that mix tokens through a state: of `heads` heads (Mamba-1: every
 * channel is one) `head_dim` wide, each with `state` numbers a channel. In a
 * gated delta net `state` is the width of a key, and a group a key head. */
struct ssm {
    uint64_t inner; /* channels: heads * head_dim */
    uint64_t heads, head_dim, state;
    uint64_t groups; /* heads of one group share B and C (keys, queries) */
    uint64_t conv;   /* taps of the convolution before */
    uint64_t rank;   /* of Mamba-1's time step */
    uint64_t chunk;  /* tokens of a chunk (Mamba-2) */
    bool bias, conv_bias;
    bool out_bias;   /* of the last product */
    bool gate_norm;  /* a norm beside the gate (Mamba-2) */
    bool norm_first; /* ... before it */
    bool norms;      /* on the time step, B and C (Jamba) */
    bool apart;      /* qkv, z, b and a come of a product each (Qwen 3.5) */
};

/* Where a value of a specification comes from. */
enum note_origin {
    NOTE_READ,    /* a key of the file */
    NOTE_DEFAULT, /* the class has one where the file says nothing */
    NOTE_CLASS,   /* the class decides, whatever a file says */
    NOTE_LIST,    /* a list of the file, not one value */
    NOTE_IGNORED  /* a key that says nothing about shapes */
};

/* How one key was understood; all texts are static or in the arena. */
struct spec_note {
    enum note_origin origin;
    const char *key;   /* as the file has it, or would; NOTE_CLASS: a word */
    const char *value; /* JSON: 4096, "silu"; what holds in the end */
    const char *given; /* JSON of the file; NOTE_DEFAULT, NOTE_CLASS: "" */
    const char *why;   /* "hidden_size / num_attention_heads"; "" none */
    bool sayable;      /* a file could say the value under the key */
};

enum { STAGES_MAX = 4 };

/* A residual network (He et al. 2016) of up to four stages. */
struct resnet {
    uint64_t blocks[STAGES_MAX];
    uint64_t stages;
    uint64_t width; /* channels of the first stage's inner convolutions */
    bool bottleneck;
    bool small_stem;               /* CIFAR's: one convolution, no pooling */
    uint64_t height, width_pixels; /* of the input */
};

/* Of a file that describes several (text_config, vision_config). */
enum part { PART_TEXT, PART_VISION, PART_ALL, PART_COUNT };

/* What makes a text model's tokens of a vision model's. */
enum joint {
    JOINT_NONE,
    JOINT_GEMMA3, /* averages of patches, a norm, a product */
    JOINT_LLAMA4, /* a product */
    JOINT_LLAVA,  /* two products, an activation between */
    JOINT_QWEN,   /* nothing: its tokens are as wide as the text's */
    JOINT_CLIP    /* nothing: two towers, each with a product to one width */
};

/* How the checkpoint's weights are packed (quantization_config). */
struct stored {
    char method[24]; /* "" for not at all */
    enum {
        STORED_PLAIN,
        STORED_NF4,
        STORED_FP4,
        STORED_INT8,
        STORED_INT4, /* of GPTQ or AWQ */
        STORED_OTHER /* nothing that base_dtype has */
    } as;
    bool twice;        /* scales are quantised too */
    uint64_t bits;     /* 0: not said */
    uint64_t group;    /* weights of a scale; 0: not said */
    uint64_t left_out; /* modules beside the head that are not packed */
};

struct spec;
/* The parts of a file; NULL where a part is not there. */
struct spec_parts {
    const struct spec *part[PART_COUNT];
    enum part usual;      /* what a file means where nobody says */
    const char *unjoined; /* why there is no whole, though both are there */
    const char *missing;  /* why there is no vision part: "a vision part of type
                            'pixtral' is not modelled" */
};

/* Kinds of layers that a list may have: id, word. */
#define CONV_MAP(X)                                                            \
    X(CONV, "conv2d")                                                          \
    X(BATCH_NORM, "batchnorm2d")                                               \
    X(RELU, "relu")                                                            \
    X(MAX_POOL, "maxpool2d")                                                   \
    X(AVG_POOL, "avgpool2d")                                                   \
    X(LINEAR, "linear")                                                        \
    X(FLATTEN, "flatten")                                                      \
    X(DROPOUT, "dropout")                                                      \
    X(ADD, "add")

enum conv_kind {
#define CONV_ENUM(id, text) CL_##id,
    CONV_MAP(CONV_ENUM)
#undef CONV_ENUM
        CONV_KINDS
};

enum { CONV_LAYERS_MAX = 1000, SPEC_DEEP_MAX = 8 };

/* What slides over a picture; sides are height and width. */
struct window {
    uint64_t kernel[2], stride[2], padding[2], dilation[2];
    bool ceil; /* a last window that does not fill counts */
};

/* What a layer gives; flat: `channels` numbers, no picture. */
struct extent {
    uint64_t channels, side[2];
    bool flat;
};

/* One layer of a list. Numbers of layers begin at 0; -1 is the input. */
struct conv_layer {
    enum conv_kind kind;
    const char *name; /* "" none */
    int32_t input;    /* the layer whose result it takes */
    int32_t from;     /* CL_ADD: the other one */
    uint64_t out, groups;
    struct window window;
    bool bias, in_place;
    uint64_t pooled[2]; /* CL_AVG_POOL: sides that it makes, whatever comes in;
                           0 by `window` */
    double p;
    struct extent gives; /* by spec_conv_shapes() */
};

/* All sizes in elements. */
struct spec {
    const char *name;       /* never NULL; "" when nothing names it */
    const char *source;     /* "" when the file does not say */
    const char *model_type; /* as written in the file */
    bool default_sizes;     /* the file gives neither depth nor width */
    const char *defaulted;  /* "head_dim 128, ...": sizes that decide parameters
                               and are the class's own; "": none */
    bool read_as; /* the family is one that the caller named, not the file */
    const struct spec_note *note; /* how the file was understood */
    size_t notes;
    size_t own_notes; /* of a part, on its own object: the first of them */
    enum family family;
    uint64_t published_parameters; /* of key "parameters"; 0 none */

    uint64_t decoder_layers; /* of a second stack that attends to the first,
                                `layers` deep; 0: one stack */
    uint64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    uint64_t decoder_heads, decoder_ffn; /* of the second stack; 0: the same */
    uint64_t max_positions;              /* 0 unknown */
    uint64_t learned_positions; /* rows of the position table (OPT: + 2) */
    bool tied;                  /* head shares the embedding's tensor */

    bool bidirectional; /* no causal mask */
    enum head_kind head;
    uint64_t labels; /* classes of a head that has such */
    enum problem problem;
    struct resnet resnet;    /* stages 0: none */
    struct conv_layer *conv; /* a list of layers, or NULL */
    uint64_t n_conv;
    uint64_t image, patch, channels; /* pixels a side; 0: words */
    bool class_token, patch_bias;    /* beside patches; of their product */
    bool pooling_head;               /* attention of one query (SigLIP) */
    double pixel_shuffle; /* sides of the adapter's tokens to those of
                                        patches (Llama 4); 0: no adapter */
    uint64_t adapter_in, adapter_out; /* widths of the adapter's products */
    uint64_t vision_width;            /* of what the text part is handed */
    /* Of Qwen's vision parts, whose images are as large as one likes: images
     * of a patch one after the other; patches a side that become one token, 0
     * in other models; such tokens a side of a window, 0 for no windows. */
    uint64_t frames, merge, window_side;
    /* Of Qwen3-VL's: rows of a square table of places, resampled for each
     * image; mergers beside the last one, and layers whose states one of them
     * makes tokens of, that are added behind as many layers of the text. */
    uint64_t patch_places, deep_mergers, deep_layers; /* SPEC_DEEP_MAX */
    struct pattern deep;
    uint64_t out_channels; /* of a model that makes an image */
    uint64_t classes;      /* that each layer is told of, none among them; 0: no
                            conditioning */
    bool shared_embedder;  /* one of times and classes, not one a layer */
    uint64_t mel_bins;     /* of a spectrum, two columns a position; 0: words */
    uint64_t target_positions; /* rows of the second stack's own table of
                                  positions; 0: as the first's */
    uint64_t token_types;      /* rows of BERT's third table; 0 none */
    double head_dropout;       /* before a classifier */
    double act_dropout;        /* after the MLP's activation */
    uint64_t relative_buckets; /* of T5's position bias; 0 none */

    enum norm_kind norm;
    enum norm_place place;
    bool final_norm;
    bool parallel_residual; /* attention and MLP side by side */
    bool shared_norm;       /* ... and fed by one norm */
    bool embedding_norm;    /* BLOOM */
    enum qk_norm qk_norm;
    enum norm_kind qk_norm_kind;

    bool gated_mlp;
    enum activation act;
    bool fused_qkv;     /* one matrix makes q, k and v */
    bool fused_gate_up; /* one matrix makes gate and up (Phi-3) */
    bool q_bias, k_bias, v_bias, o_bias, mlp_bias, head_bias;

    enum position position;
    uint64_t rotary_dim; /* of each head; head_dim when all of it */
    uint64_t embed_dim;  /* width of the table (OPT-350m: 512) */
    bool embed_scale;    /* embeddings times sqrt(hidden) (Gemma) */
    double logit_scale;  /* Cohere, 1 for none */
    double clip_qkv;     /* OLMo, MPT: q, k, v clamped; 0 for none */
    double attn_softcap, final_softcap; /* Gemma 2; 0 for none */
    uint64_t sliding_window;            /* 0 none */
    struct pattern slides;              /* layers with that window */
    uint64_t sliding_layers;            /* how many these are */
    bool chunked;          /* the window does not slide: it is one of so many */
    uint64_t block_stride; /* those attend to blocks: near ones, and every so
                              manyth (Phi-3 small); 0: no blocks */
    bool two_ropes;        /* those have rotary tables of their own (Gemma 3) */
    struct pattern rotates; /* layers with rotary embeddings, where they are
                               the model's positions */
    struct pattern attends; /* layers with attention; the others have `mixer` */
    enum mixer mixer;
    bool both_mixers;     /* attention beside `mixer` in every layer, the two
                             added up (Falcon-H1) */
    bool lone_parts;      /* a layer is a mixer, or an MLP or experts, not both
                             (Nemotron-H) */
    struct pattern mixes; /* then: layers that are mixers */
    struct ssm ssm;
    bool residual_fp32;  /* the sum of branches is, whatever they are */
    bool attention_gate; /* a sigmoid of the queries' matrix scales what
                            attention gives (Qwen3-Next) */
    double hidden_dropout, embed_dropout, attention_dropout;
    bool attention_sinks; /* a logit a head that no key has (GPT-OSS) */
    bool residual_scale;  /* branches times a constant (Granite, MiniCPM) */
    bool head_norm;       /* rows of the head are normed (Baichuan 2) */

    /* Latent attention; kv_rank 0: none. Then head_dim is nope + rope, and
     * there are as many key heads as query heads. */
    uint64_t q_rank; /* 0: queries come from the hidden states */
    uint64_t kv_rank, nope_dim, rope_dim, v_dim;
    bool latent_norm;    /* norms on the compressed (DeepSeek) */
    uint64_t mtp_layers; /* modules that predict tokens after the next */
    /* Heads, and their width, that choose keys; 0: none. Nothing trains them
     * with the rest (DeepSeek V3.2). */
    uint64_t index_heads, index_dim, index_topk;
    bool tunes_temperature; /* of queries that do not rotate (Llama 4) */

    uint64_t experts, experts_per_token, expert_ffn; /* 0: dense */
    uint64_t expert_latent; /* width that experts take and give, between two
                               products; 0: the model's (Nemotron-H) */
    uint64_t shared_ffn;    /* width of shared experts, 0 none */
    struct pattern sparse;  /* layers with experts */
    bool router_bias;
    double router_noise; /* in training the input of experts is multiplied by
                            uniform numbers this far from 1; 0: it is not */
    bool balances;       /* a second loss, of all routers' logits */
    enum router router;
    uint64_t router_groups;     /* of which some are chosen first; 0, 1: none */
    uint64_t router_top_groups; /* so many */
    bool router_corrected;      /* of sigmoids: a buffer is added to choose */
    bool router_renorm;         /* weights of the chosen sum to one */
    bool expert_bias;
    bool shared_gate; /* a sigmoid of its own scales the shared expert */

    struct stored stored;
    enum part part;
    const struct spec_parts
        *parts;                /* of the file; NULL: it describes one model */
    const char *text_of;       /* what the file says it is, of whose text part
                                  this is read; NULL: all of it is */
    const struct spec *vision; /* PART_ALL: the layers before these; or NULL */
    enum joint joint;          /* between them */
    uint64_t joint_width;      /* of CLIP's two products; 0 */
    uint64_t joint_layers;     /* of the vision part, side by side (LLaVA) */
    uint64_t unused_layers;    /* of the vision part, after the one whose states
                               the text is handed (LLaVA): they run in vain */
    bool joint_crops;          /* the text is handed all states but the first */
    bool joint_bias;
    enum activation joint_act;
    uint64_t image_tokens; /* of one image, among the text's */
};

/* Layers before those of the text, and what stands between them: of layers
 * that run in vain there. */
static inline uint64_t spec_vision_blocks(const struct spec *spec)
{
    return spec->vision != NULL ? spec->vision->layers - spec->unused_layers + 1
                                : 0;
}

/* Blocks between embedding and head: layers, and between two stacks one. */
static inline uint64_t spec_blocks(const struct spec *spec)
{
    return spec_vision_blocks(spec) + spec->layers
           + (spec->decoder_layers > 0 ? spec->decoder_layers + 1 : 0);
}

/* A network of convolutions. */
static inline bool spec_is_convnet(const struct spec *spec)
{
    return spec->resnet.stages > 0 || spec->n_conv > 0;
}

/* Its model adds a mask that it makes itself, also where nothing is padded:
 * transformers before 5 (BertModel, get_extended_attention_mask). */
static inline bool spec_masks_itself(const struct spec *spec)
{
    return spec->family == FAM_BERT || spec->family == FAM_ROBERTA;
}

/* Images or spectra come in: all of them, or beside words to match. */
static inline bool spec_is_seen(const struct spec *spec)
{
    return spec->channels > 0 || spec_is_convnet(spec)
           || spec->joint == JOINT_CLIP || spec->family == FAM_CLIP_TEXT;
}

/* What scaling laws were fitted to, and what 6 N D is of: every token, and
 * tokens are words, passes through all parameters. */
static inline bool spec_is_language(const struct spec *spec)
{
    return !spec_is_seen(spec) && spec->mel_bins == 0;
}

/* A word of CONV_MAP. */
const char *conv_kind_name(enum conv_kind kind);
/* The first layer of a list that its input does not suit. */
struct conv_fault {
    uint64_t layer;
    char message[200], hint[160];
};
/* Infers what every layer of a list gives from the input; false with a fault.
 */
bool spec_conv_shapes(struct spec *spec, struct conv_fault *fault);
/* Another input than the file's: channels, height, width. */
memplan_status spec_set_image(struct spec *spec, const uint16_t image[3],
                              struct diag *d);

/* The same of a whole: `vision` is a copy of its vision part, and takes that
 * one's place. [spec_parts.c] */
memplan_status spec_set_whole_image(struct spec *spec, struct spec *vision,
                                    const uint16_t image[3], struct diag *d);

/* A parsed text of a model, and what is said of it from outside. */
struct json;
struct spec_text {
    const struct json *root;
    const char *text; /* that root was parsed from */
    size_t len;
    const char *name; /* where the text has none; NULL: none */
    const char *as;   /* the family to read it as; NULL: its own */
};

/* Decodes a parsed text. Reports every bad field. Everything spec points to
 * lives in the arena or is static; nothing in it points into the text. Returns
 * d's status. */
memplan_status spec_import(struct spec *out, const struct spec_text *in,
                           struct arena *a, struct diag *d);

/* "llama" */
const char *family_name(enum family family);

/* "text"; the part of that name, PART_COUNT when none has it. (spec_parts.c) */
const char *part_name(enum part part);
enum part part_find(const char *name);

/* Whether more is in the file than this part; a line that says so. */
enum { PART_TEXT_MAX = 160 };
bool spec_says_part(const struct spec *spec, char text[PART_TEXT_MAX]);

/* ---- catalogue of embedded models (src/data/models.c, generated) ---- */

/* Its experts are one of those that PEFT 0.21 knows as fused: targets of
 * transformers 4's names become parameters
 * (peft/utils/transformers_weight_conversion.py). [spec_family.c] */
bool spec_translates_targets(const struct spec *spec);

#endif
