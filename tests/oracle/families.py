"""The families at a small shape, in the dialect of Hugging Face's config.json."""
import torch


SHAPES = {  # mutually distinguishable sizes; "wide" has heads * head_dim != hidden
    "small": dict(b=3, s=40, h=96, a=6, kv=2, d=16, f=208, v=1234, L=3),
    "other": dict(b=2, s=56, h=144, a=6, kv=3, d=24, f=224, v=1111, L=3),
    "third": dict(b=5, s=24, h=128, a=4, kv=2, d=32, f=336, v=1018, L=3),
    "check": dict(b=4, s=48, h=192, a=12, kv=3, d=16, f=272, v=899, L=3),
    "wide": dict(b=3, s=40, h=96, a=6, kv=2, d=24, f=208, v=1234, L=3),
    "odd": dict(b=3, s=37, h=96, a=6, kv=2, d=16, f=208, v=1234, L=3),  # rows of masks are not aligned
    "long": dict(b=2, s=1024, h=256, a=8, kv=2, d=32, f=512, v=1000, L=3),  # layers above the loss in the forward
}


def _llama_like(kind, c, head_dim=False, **more):
    base = dict(model_type=kind, hidden_size=c["h"], num_attention_heads=c["a"], num_key_value_heads=c["kv"],
                intermediate_size=c["f"], vocab_size=c["v"], num_hidden_layers=c["L"], max_position_embeddings=64)
    if head_dim:
        base["head_dim"] = c["d"]
    base.update(more)
    return base


def _no_gqa(kind, c, **more):
    base = _llama_like(kind, c, **more)
    del base["num_key_value_heads"]
    return base


def _falcon(c, **more):
    base = dict(model_type="falcon", hidden_size=c["h"], num_attention_heads=c["a"], ffn_hidden_size=c["f"],
                vocab_size=c["v"], num_hidden_layers=c["L"], max_position_embeddings=64)
    base.update(more)
    return base


def _bert(c, kind="bert", **more):
    return _no_gqa(kind, c, type_vocab_size=2, hidden_act="gelu", **more)


def _latent(kind, c, **more):
    base = _no_gqa(kind, c)
    base.update(num_key_value_heads=c["a"], q_lora_rank=72, kv_lora_rank=40, qk_nope_head_dim=16,
                   qk_rope_head_dim=8, v_head_dim=24, n_routed_experts=6, num_experts_per_tok=2,
                   moe_intermediate_size=176, n_shared_experts=2, first_k_dense_replace=0)
    base.update(more)
    return base


def _no_experts(config):
    return {key: value for key, value in config.items() if "expert" not in key and "moe" not in key and "dense" not in key}


_ids = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)

FAMILIES = {  # name: (config from shape, free head_dim, has kv heads)
    "llama": (lambda c: _llama_like("llama", c, True), True),
    "mistral": (lambda c: _llama_like("mistral", c, True), True),
    "mistral-window": (lambda c: _llama_like("mistral", c, True, sliding_window=8), True),  # s beyond the window
    "qwen2": (lambda c: _llama_like("qwen2", c), False),
    "qwen3": (lambda c: _llama_like("qwen3", c, True), True),
    "gemma": (lambda c: _llama_like("gemma", c, True), True),
    "gemma2": (lambda c: _llama_like("gemma2", c, True, query_pre_attn_scalar=c["d"], sliding_window=4096), True),
    "phi3": (lambda c: _llama_like("phi3", c, **_ids), False),
    "gpt2": (lambda c: dict(model_type="gpt2", n_embd=c["h"], n_head=c["a"], n_inner=c["f"], vocab_size=c["v"],
                            n_layer=c["L"], n_positions=64), False),
    "gpt_neo": (lambda c: dict(model_type="gpt_neo", hidden_size=c["h"], num_heads=c["a"], intermediate_size=c["f"],
                               vocab_size=c["v"], num_layers=c["L"], max_position_embeddings=64, window_size=16,
                               attention_types=[[["global"], c["L"]]]), False),
    "gpt_neo-local": (lambda c: dict(model_type="gpt_neo", hidden_size=c["h"], num_heads=c["a"],
                                     intermediate_size=c["f"], vocab_size=c["v"], num_layers=c["L"],
                                     max_position_embeddings=64, window_size=16,
                                     attention_types=[[["local"], c["L"]]]), False),
    "gptj": (lambda c: dict(model_type="gptj", n_embd=c["h"], n_head=c["a"], n_inner=c["f"], rotary_dim=c["d"] // 2,
                            vocab_size=c["v"], n_layer=c["L"], n_positions=64), False),
    "gpt_neox": (lambda c: _no_gqa("gpt_neox", c, hidden_act="gelu", rotary_pct=0.25), False),
    "gpt_neox-serial": (lambda c: _no_gqa("gpt_neox", c, hidden_act="gelu", rotary_pct=0.25,
                                          use_parallel_residual=False), False),
    "opt": (lambda c: dict(model_type="opt", hidden_size=c["h"], word_embed_proj_dim=c["h"],
                           num_attention_heads=c["a"], ffn_dim=c["f"], vocab_size=c["v"], num_hidden_layers=c["L"],
                           max_position_embeddings=64), False),
    "bloom": (lambda c: dict(model_type="bloom", hidden_size=c["h"], n_head=c["a"], vocab_size=c["v"],
                             n_layer=c["L"]), False),
    "falcon": (lambda c: _falcon(c, multi_query=True, parallel_attn=True, new_decoder_architecture=False,
                                 bias=False, alibi=False), False),
    "falcon-new": (lambda c: _falcon(c, new_decoder_architecture=True, num_kv_heads=c["kv"], bias=False,
                                     alibi=False), False),
    "falcon-rw": (lambda c: _falcon(c, multi_query=False, parallel_attn=False, new_decoder_architecture=False,
                                    bias=True, alibi=True), False),
    "mpt": (lambda c: dict(model_type="mpt", d_model=c["h"], n_heads=c["a"], expansion_ratio=2, vocab_size=c["v"],
                           n_layers=c["L"], max_seq_len=64), False),
    "starcoder2": (lambda c: _llama_like("starcoder2", c), False),
    "gpt_bigcode": (lambda c: dict(model_type="gpt_bigcode", n_embd=c["h"], n_head=c["a"], n_inner=c["f"],
                                   vocab_size=c["v"], n_layer=c["L"], n_positions=64, multi_query=True), False),
    "stablelm": (lambda c: _llama_like("stablelm", c, partial_rotary_factor=0.25), False),
    "stablelm-parallel": (lambda c: _llama_like("stablelm", c, partial_rotary_factor=0.25,
                                                use_parallel_residual=True), False),
    "stablelm-qknorm": (lambda c: _llama_like("stablelm", c, partial_rotary_factor=0.25, qk_layernorm=True), False),
    "stablelm-parallel-qknorm": (lambda c: _llama_like("stablelm", c, partial_rotary_factor=0.25, qk_layernorm=True,
                                                       use_parallel_residual=True), False),
    "olmo": (lambda c: _llama_like("olmo", c), False),
    "olmo-clip": (lambda c: _llama_like("olmo", c, clip_qkv=8.0), False),
    "olmo2": (lambda c: _llama_like("olmo2", c), False),
    "cohere": (lambda c: _llama_like("cohere", c, **_ids), False),
    "cohere-qknorm": (lambda c: _llama_like("cohere", c, use_qk_norm=True, **_ids), False),
    "mixtral": (lambda c: _llama_like("mixtral", c, True, num_local_experts=5, num_experts_per_tok=2), True),
    "bert": (lambda c: _bert(c, architectures=["BertForMaskedLM"]), False),
    "bert-pretraining": (lambda c: _bert(c, architectures=["BertForPreTraining"]), False),
    "bert-sequence": (lambda c: _bert(c, architectures=["BertForSequenceClassification"], num_labels=3), False),
    "bert-token": (lambda c: _bert(c, architectures=["BertForTokenClassification"], num_labels=5), False),
    "bert-span": (lambda c: _bert(c, architectures=["BertForQuestionAnswering"]), False),
    "roberta": (lambda c: _bert(c, "roberta", architectures=["RobertaForMaskedLM"]), False),
    "roberta-sequence": (lambda c: _bert(c, "roberta", architectures=["RobertaForSequenceClassification"]), False),
    "phi": (lambda c: _llama_like("phi", c, partial_rotary_factor=0.5), False),
    "phi-qknorm": (lambda c: _llama_like("phi", c, partial_rotary_factor=0.5, qk_layernorm=True), False),
    "glm4": (lambda c: _llama_like("glm4", c, True, partial_rotary_factor=0.5, **_ids), True),
    "qwen2_moe": (lambda c: _llama_like("qwen2_moe", c, num_experts=5, num_experts_per_tok=2,
                                        moe_intermediate_size=176, shared_expert_intermediate_size=144,
                                        decoder_sparse_step=1), False),
    "qwen3_moe": (lambda c: _llama_like("qwen3_moe", c, True, num_experts=5, num_experts_per_tok=2,
                                        moe_intermediate_size=176), True),
    "olmoe": (lambda c: _llama_like("olmoe", c, num_experts=5, num_experts_per_tok=2), False),
    "granitemoe": (lambda c: _llama_like("granitemoe", c, num_local_experts=5, num_experts_per_tok=2,
                                         embedding_multiplier=12.0, logits_scaling=6.0,
                                         residual_multiplier=0.22), False),
    "gpt_oss": (lambda c: _llama_like("gpt_oss", c, True, num_local_experts=5, num_experts_per_tok=2,
                                      sliding_window=128), True),
    "glm4_moe": (lambda c: _llama_like("glm4_moe", c, True, n_routed_experts=6, num_experts_per_tok=2,
                                       moe_intermediate_size=176, n_shared_experts=1, first_k_dense_replace=0,
                                       use_qk_norm=True, attention_bias=True), True),
    "deepseek_v2": (lambda c: _latent("deepseek_v2", c), False),
    "deepseek_v3": (lambda c: _latent("deepseek_v3", c, n_group=2, topk_group=1), False),
    "deepseek_v3-noq": (lambda c: _latent("deepseek_v3", c, n_group=2, topk_group=1, q_lora_rank=None), False),
}

FAMILIES.update({
    "phimoe": (lambda c: _llama_like("phimoe", c, True, num_local_experts=5, num_experts_per_tok=2), True),
    "phimoe-bias": (lambda c: _llama_like("phimoe", c, True, num_local_experts=5, num_experts_per_tok=2,
                                          attention_bias=True, lm_head_bias=True), True),
    "dbrx": (lambda c: dict(model_type="dbrx", d_model=c["h"], n_heads=c["a"], n_layers=c["L"], max_seq_len=64,
                            vocab_size=c["v"], attn_config=dict(kv_n_heads=c["kv"], clip_qkv=8.0, rope_theta=5e5),
                            ffn_config=dict(ffn_hidden_size=c["f"], moe_num_experts=5, moe_top_k=2)), False),
})

FAMILIES["vit"] = (lambda c: dict(model_type="vit", architectures=["ViTForImageClassification"], hidden_size=c["h"],
                                  num_attention_heads=c["a"], intermediate_size=c["f"], num_hidden_layers=c["L"],
                                  image_size=56, patch_size=8, num_channels=3, num_labels=10), False)

FAMILIES.update({  # patterns so that all layers of a file are of one kind: its figures are of a layer
    "smollm3": (lambda c: _llama_like("smollm3", c, **_ids), False),
    "smollm3-nope": (lambda c: _llama_like("smollm3", c, no_rope_layers=[0] * c["L"], **_ids), False),
    "granite": (lambda c: _llama_like("granite", c, embedding_multiplier=12.0, logits_scaling=6.0,
                                      residual_multiplier=0.22, attention_multiplier=0.1), False),
    "glm": (lambda c: _llama_like("glm", c, True, partial_rotary_factor=0.5, **_ids), True),
    "seed_oss": (lambda c: _llama_like("seed_oss", c, True), True),
    "ministral": (lambda c: _llama_like("ministral", c, True, sliding_window=8), True),
    "hunyuan_v1_dense": (lambda c: _llama_like("hunyuan_v1_dense", c, True, **_ids), True),
    "ernie4_5": (lambda c: _llama_like("ernie4_5", c, True), True),
    "ernie4_5_moe": (lambda c: _llama_like("ernie4_5_moe", c, True, moe_num_experts=5, moe_k=2, moe_intermediate_size=176,
                                           moe_num_shared_experts=2, moe_layer_start_index=0), True),
    "dots1": (lambda c: _llama_like("dots1", c, True, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=176,
                                    n_shared_experts=1, first_k_dense_replace=0, norm_topk_prob=True), True),
    "nemotron": (lambda c: _llama_like("nemotron", c, True, **_ids), True),
    "olmo3": (lambda c: _llama_like("olmo3", c, sliding_window=8), False),
    "olmo3-full": (lambda c: _llama_like("olmo3", c, layer_types=["full_attention"] * c["L"]), False),
    "exaone4": (lambda c: _llama_like("exaone4", c, True, sliding_window=8, **_ids), True),
    "exaone4-nope": (lambda c: _llama_like("exaone4", c, True, layer_types=["full_attention"] * c["L"], **_ids), True),
    "cohere2": (lambda c: _llama_like("cohere2", c, sliding_window=8, **_ids), False),
    "cohere2-nope": (lambda c: _llama_like("cohere2", c, layer_types=["full_attention"] * c["L"], **_ids), False),
    "gemma3_text": (lambda c: _llama_like("gemma3_text", c, True, query_pre_attn_scalar=c["d"], sliding_window=8), True),
    "gemma3_text-full": (lambda c: _llama_like("gemma3_text", c, True, query_pre_attn_scalar=c["d"],
                                               layer_types=["full_attention"] * c["L"]), True),
})

def _llama4(c, **more):
    return _llama_like("llama4_text", c, True, intermediate_size_mlp=272, num_local_experts=5, num_experts_per_tok=2,
                       **more)


def _minicpm3(c, **more):
    base = _no_gqa("minicpm3", c)
    base.update(num_key_value_heads=c["a"], q_lora_rank=72, kv_lora_rank=40, qk_nope_head_dim=16, qk_rope_head_dim=8,
                v_head_dim=24, dim_model_base=48)
    base.update(more)
    return base


FAMILIES.update({
    "minicpm3": (lambda c: _minicpm3(c), False),
    "minicpm3-noq": (lambda c: _minicpm3(c, q_lora_rank=None), False),
    "deepseek_v32": (lambda c: _latent("deepseek_v32", c, n_group=2, topk_group=1, index_n_heads=4, index_head_dim=16,
                                       index_topk=8), False),
    "llama4_text": (lambda c: _llama4(c, attention_chunk_size=8, no_rope_layer_interval=99), True),
    "llama4_text-nope": (lambda c: _llama4(c, no_rope_layers=[0] * c["L"]), True),
    "llama4_text-dense": (lambda c: _llama4(c, moe_layers=[], use_qk_norm=False, no_rope_layer_interval=99), True),
})

FAMILIES.update({  # text parts of wholes, whose class runs them without an image: measure.WHOLES
    **{name: (lambda c, name=name: _llama_like(name, c, rope_scaling=dict(type="mrope", mrope_section=[
        c["d"] // 4, c["d"] // 8, c["d"] // 8])), False) for name in ("qwen2_vl_text", "qwen2_5_vl_text")},
    "qwen3_vl_text": (lambda c: _llama_like("qwen3_vl_text", c, True), True),
    "qwen3_vl_moe_text": (lambda c: _llama_like("qwen3_vl_moe_text", c, True, num_experts=5, num_experts_per_tok=2,
                                                moe_intermediate_size=176), True),
})

def _all(kind, c):
    return dict(layer_types=[kind] * c["L"])


FAMILIES.update({
    "ministral3": (lambda c: _llama_like("ministral3", c, True), True),
    "cwm": (lambda c: _llama_like("cwm", c, True, sliding_window=8, **_all("sliding_attention", c), **_ids), True),
    "cwm-full": (lambda c: _llama_like("cwm", c, True, **_all("full_attention", c), **_ids), True),
    "jais2": (lambda c: _llama_like("jais2", c, True, **_ids), True),
    "hyperclovax": (lambda c: _llama_like("hyperclovax", c, True, embedding_multiplier=12.0, logits_scaling=6.0,
                                          residual_multiplier=0.22, attention_multiplier=0.1, **_ids), True),
    "youtu": (lambda c: _no_experts(_latent("youtu", c, **_ids)), False),
    "minimax_m2": (lambda c: _llama_like("minimax_m2", c, True, num_local_experts=5, num_experts_per_tok=2), True),
    "solar_open": (lambda c: _llama_like("solar_open", c, True, n_routed_experts=6, num_experts_per_tok=2,
                                         moe_intermediate_size=176, n_shared_experts=1, **_ids), True),
    "glm4_moe_lite": (lambda c: _latent("glm4_moe_lite", c, n_shared_experts=1, mlp_layer_types=["sparse"] * c["L"]), False),
})


FAMILIES.update({
    "flex_olmo": (lambda c: _llama_like("flex_olmo", c, num_experts=5, num_experts_per_tok=2, **_ids), False),
    "exaone_moe": (lambda c: _llama_like("exaone_moe", c, True, sliding_window=8, num_experts=6, num_experts_per_tok=2,
                                         moe_intermediate_size=176, first_k_dense_replace=0, **_ids), True),
    "exaone_moe-nope": (lambda c: _llama_like("exaone_moe", c, True, num_experts=6, num_experts_per_tok=2,
                                              moe_intermediate_size=176, first_k_dense_replace=0, num_shared_experts=2,
                                              **_all("full_attention", c), **_ids), True),
    "vaultgemma": (lambda c: _llama_like("vaultgemma", c, True, query_pre_attn_scalar=c["d"], sliding_window=4096), True),
    "granitemoeshared": (lambda c: _llama_like("granitemoeshared", c, num_local_experts=5, num_experts_per_tok=2,
                                               shared_intermediate_size=144, embedding_multiplier=12.0, logits_scaling=6.0,
                                               residual_multiplier=0.22), False),
})


def _distilbert(c, **more):
    return dict(model_type="distilbert", dim=c["h"], n_heads=c["a"], hidden_dim=c["f"], vocab_size=c["v"],
                n_layers=c["L"], max_position_embeddings=64, **more)


FAMILIES.update({
    "arcee": (lambda c: _llama_like("arcee", c, True, **_ids), True),
    "helium": (lambda c: _llama_like("helium", c, True), False),
    "internlm3": (lambda c: _llama_like("internlm3", c, True, **_ids), True),
    "xlm-roberta": (lambda c: _bert(c, "xlm-roberta", architectures=["XLMRobertaForMaskedLM"]), False),
    "camembert-token": (lambda c: _bert(c, "camembert", architectures=["CamembertForTokenClassification"], num_labels=5),
                        False),
    "distilbert": (lambda c: _distilbert(c, architectures=["DistilBertForMaskedLM"]), False),
    "distilbert-sequence": (lambda c: _distilbert(c, architectures=["DistilBertForSequenceClassification"],
                                                  num_labels=3), False),
    "distilbert-token": (lambda c: _distilbert(c, architectures=["DistilBertForTokenClassification"], num_labels=5), False),
    "distilbert-span": (lambda c: _distilbert(c, architectures=["DistilBertForQuestionAnswering"]), False),
})

def _qwen3_5(name, c, layers, **more):
    rope = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25, mrope_section=[c["d"] // 8, 0, 0])
    return _llama_like(name, c, head_dim=c["d"], rope_parameters=rope, layer_types=[layers] * c["L"], **more)


def _granite_hybrid(c, layers, **more):
    return _llama_like("granitemoehybrid", c, **{**dict(
        num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=144, embedding_multiplier=12.0,
        logits_scaling=6.0, residual_multiplier=0.22, layer_types=[layers] * c["L"], mamba_n_heads=2 * c["h"] // c["d"],
        mamba_d_head=c["d"], mamba_d_state=c["d"], mamba_n_groups=2, mamba_chunk_size=32), **more})


def _bamba(c, **more):
    return _llama_like("bamba", c, mamba_n_heads=2 * c["h"] // c["d"], mamba_d_head=c["d"], mamba_d_state=c["d"],
                       mamba_n_groups=2, mamba_chunk_size=32, **more)


def _nemotron_h(c, kinds, **more):
    base = _llama_like("nemotron_h", c, layers_block_type=(kinds * c["L"])[:c["L"]], mamba_num_heads=2 * c["h"] // c["d"],
                       head_dim=c["d"], mamba_head_dim=c["d"], ssm_state_size=c["d"], n_groups=2, chunk_size=32,
                       n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=176,
                       moe_shared_expert_intermediate_size=144, **more)
    return {key: value for key, value in base.items() if key != "num_hidden_layers"}


def _lfm2(c, layers, **more):
    return _llama_like("lfm2", c, **{**dict(layer_types=[layers] * c["L"], block_multiple_of=16), **more})


def _lfm2_moe(c, layers, **more):
    return _llama_like("lfm2_moe", c, **{**dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=176,
                                                num_dense_layers=0, layer_types=[layers] * c["L"]), **more})


def _falcon_h1(c, **more):
    return _llama_like("falcon_h1", c, mamba_d_ssm=c["h"], mamba_n_heads=c["h"] // c["d"], mamba_d_head=c["d"],
                       mamba_d_state=c["d"], mamba_n_groups=2, mamba_chunk_size=32, lm_head_multiplier=0.5,
                       embedding_multiplier=5.0, key_multiplier=0.4, ssm_multipliers=[0.3, 0.2, 0.1, 0.5, 0.3], **more)


HYBRID = {  # layers of Mamba-2 by state_space_torch.py, the others by golden.py
    "granitemoehybrid": (lambda c: _granite_hybrid(c, "linear_attention"), False),
    "granitemoehybrid-dense": (lambda c: _granite_hybrid(c, "linear_attention", num_local_experts=0), False),
    "granitemoehybrid-attention": (lambda c: _granite_hybrid(c, "full_attention"), False),
    "granitemoehybrid-rope": (lambda c: _granite_hybrid(c, "full_attention", num_local_experts=0,
                                                        position_embedding_type="rope"), False),
    "bamba": (lambda c: _bamba(c), False),
    "nemotron_h": (lambda c: _nemotron_h(c, ["linear_attention"]), False),
    "nemotron_h-attention": (lambda c: _nemotron_h(c, ["full_attention"]), False),
    "nemotron_h-mlp": (lambda c: _nemotron_h(c, ["mlp"]), False),
    "nemotron_h-moe": (lambda c: _nemotron_h(c, ["moe"]), False),
    "nemotron_h-latent": (lambda c: _nemotron_h(c, ["moe"], moe_latent_size=56, n_group=2), False),
    "lfm2": (lambda c: _lfm2(c, "conv"), False),
    "lfm2-bias": (lambda c: _lfm2(c, "conv", conv_bias=True, tie_word_embeddings=False), False),
    "lfm2-attention": (lambda c: _lfm2(c, "full_attention"), False),
    "lfm2_moe": (lambda c: _lfm2_moe(c, "conv"), False),
    "lfm2_moe-attention": (lambda c: _lfm2_moe(c, "full_attention", use_expert_bias=False), False),
    "falcon_h1": (lambda c: _falcon_h1(c), False),
    "falcon_h1-norm": (lambda c: _falcon_h1(c, mamba_rms_norm=True, mamba_norm_before_gate=False, projectors_bias=True), False),
    "falcon_h1-first": (lambda c: _falcon_h1(c, mamba_rms_norm=True), False),
    "bamba-attention": (lambda c: _bamba(c, attn_layer_indices=list(range(c["L"]))), False),
}
FAMILIES.update(HYBRID)

def _routed(name, **keys):
    return lambda c: dict(FAMILIES[name][0](c), max_position_embeddings=c["s"], **keys)


ROUTED = {  # whole steps of keys that experts have: step_families.py
    "mixtral-noise": _routed("mixtral", router_jitter_noise=0.01),
    "qwen3_moe-balance": _routed("qwen3_moe", output_router_logits=True, num_experts=256, moe_intermediate_size=16),
    "granitemoe-balance": _routed("granitemoe", output_router_logits=True, num_local_experts=256, intermediate_size=16),
    "phimoe-noise": _routed("phimoe", input_jitter_noise=0.01),
}

MIXED = {  # whole steps of layers of both kinds: step.py
    "granitemoehybrid-mixed": lambda c: _granite_hybrid(c, "full_attention", layer_types=(
        ["linear_attention", "full_attention"] * c["L"])[:c["L"]]),
    "nemotron_h-mixed": lambda c: _nemotron_h(dict(c, L=4), ["linear_attention", "moe", "full_attention", "mlp"]),
    "lfm2-mixed": lambda c: _lfm2(c, None, layer_types=["conv", "full_attention"]),
    "lfm2_moe-mixed": lambda c: _lfm2_moe(dict(c, L=4), None, num_dense_layers=1, layer_types=["conv", "full_attention"] * 2),
    "falcon_h1-mixed": lambda c: _falcon_h1(c),
    "bamba-mixed": lambda c: _bamba(c, attn_layer_indices=[1]),
}

STATE_SPACE = {  # kernels of other packages: state_space.py
    "mamba": (lambda c: dict(model_type="mamba", hidden_size=c["h"], num_hidden_layers=c["L"], vocab_size=c["v"],
                             state_size=c["d"] // 2), False),
    "mamba2": (lambda c: dict(model_type="mamba2", hidden_size=c["h"], num_hidden_layers=c["L"], vocab_size=c["v"],
                              num_heads=2 * c["h"] // c["d"], head_dim=c["d"], state_size=c["d"], n_groups=2,
                              chunk_size=32), False),
    "jamba": (lambda c: _llama_like("jamba", c, num_experts=5, num_experts_per_tok=2, attn_layer_period=2 * c["L"],
                                    attn_layer_offset=2 * c["L"] - 1, expert_layer_period=1, expert_layer_offset=0,
                                    mamba_d_state=c["d"] // 2), False),
    "qwen3_next": (lambda c: _llama_like("qwen3_next", c, head_dim=c["d"], num_experts=5, num_experts_per_tok=2,
                                         moe_intermediate_size=176, shared_expert_intermediate_size=144,
                                         linear_num_key_heads=c["kv"], linear_num_value_heads=2 * c["kv"],
                                         linear_key_head_dim=c["d"], linear_value_head_dim=c["d"] // 2,
                                         layer_types=["linear_attention"] * c["L"]), False),
    "qwen3_next-gated": (lambda c: _llama_like("qwen3_next", c, head_dim=c["d"], num_experts=5, num_experts_per_tok=2,
                                               moe_intermediate_size=176, shared_expert_intermediate_size=144,
                                               layer_types=["full_attention"] * c["L"]), False),
    "qwen3_5": (lambda c: _qwen3_5("qwen3_5_text", c, "linear_attention", linear_num_key_heads=c["kv"],
                                   linear_num_value_heads=2 * c["kv"], linear_key_head_dim=c["d"],
                                   linear_value_head_dim=c["d"] // 2), False),
    "qwen3_5-gated": (lambda c: _qwen3_5("qwen3_5_text", c, "full_attention"), False),
    "qwen3_5_moe-gated": (lambda c: _qwen3_5("qwen3_5_moe_text", c, "full_attention", num_experts=5, num_experts_per_tok=2,
                                             moe_intermediate_size=176, shared_expert_intermediate_size=144), False),
}
FAMILIES.update(STATE_SPACE)



def _longer(name, **more):
    base = FAMILIES[name]
    return (lambda c: dict(base[0](c), max_position_embeddings=4096, **more)), base[1]


LONG = {  # of the shape "long"
    "llama-long": _longer("llama"),
    **{name + "-long": _longer(name) for name in ("falcon", "falcon-new", "falcon-rw", "bloom")},
    "mixtral-long": _longer("mixtral", num_local_experts=16, num_experts_per_tok=4),
    "qwen2_moe-long": _longer("qwen2_moe", num_experts=16, num_experts_per_tok=4),
    "qwen3_moe-long": _longer("qwen3_moe", num_experts=16, num_experts_per_tok=4),
    "gpt_oss-long": _longer("gpt_oss", num_local_experts=16, num_experts_per_tok=4),
    "glm4_moe-long": _longer("glm4_moe", n_routed_experts=16, num_experts_per_tok=4),
}
FAMILIES.update(LONG)

ODD = {name + "-odd": FAMILIES[name] for name in ("mistral-window", "falcon", "falcon-rw")}  # of the shape "odd"
FAMILIES.update(ODD)

_class = dict(llama="Llama", mistral="Mistral", qwen2="Qwen2", qwen3="Qwen3", gemma="Gemma", gemma2="Gemma2", phi3="Phi3",
              gpt2="GPT2", gpt_neox="GPTNeoX", starcoder2="Starcoder2", stablelm="StableLm", opt="OPT", phi="Phi")


def _classified(name, end, **more):
    return lambda c: dict(FAMILIES[name][0](c), architectures=[_class[name] + end], pad_token_id=0, num_labels=3, **more)


CLASSIFIED = {n + "-sequence": (_classified(n, "ForSequenceClassification"), False) for n in _class}
CLASSIFIED |= {n + "-token": (_classified(n, "ForTokenClassification"), False)
               for n in _class if n not in ("opt", "gpt_neox")}
CLASSIFIED["llama-regression"] = (lambda c: {**_classified("llama", "ForSequenceClassification")(c), "num_labels": 1}, False)
CLASSIFIED["llama-multi"] = (_classified("llama", "ForSequenceClassification",
                                         problem_type="multi_label_classification"), False)
FAMILIES.update(CLASSIFIED)

FEW = {*ODD, *CLASSIFIED, "bert-pretraining", "bert-sequence", "bert-token", "bert-span", "roberta",
       "roberta-sequence", "xlm-roberta", "camembert-token", "distilbert-sequence", "distilbert-token", "distilbert-span"}  # layers as elsewhere: sdpa alone, with the default dropout


def image(config, b, device):
    return dict(pixel_values=torch.zeros(b, config.num_channels, config.image_size, config.image_size, device=device))


def targets(name, ids, problem=None, labels=2):
    """What the class wants beside its input: labels of tokens, of sequences, or both."""
    each = ids.new_zeros(ids.shape[0])
    if problem == "multi_label_classification":
        return dict(labels=torch.zeros(ids.shape[0], labels, device=ids.device))
    if labels == 1:
        return dict(labels=each.float())
    if name.endswith("ForSequenceClassification") or name.endswith("ForImageClassification"):
        return dict(labels=each)
    if name.endswith("ForQuestionAnswering"):
        return dict(start_positions=each, end_positions=each)
    if name.endswith("ForPreTraining"):
        return dict(labels=ids, next_sentence_label=each)
    return dict(labels=ids)


DROPOUT_FIELDS = ("attention_dropout", "hidden_dropout", "dropout", "activation_dropout", "embd_pdrop", "attn_pdrop",
                  "resid_pdrop", "embed_dropout", "resid_dropout", "embedding_dropout", "residual_dropout", "layerdrop",
                  "classifier_dropout", "attn_dropout", "emb_pdrop")


def without_dropout(config):
    """Sets every dropout probability of a transformers config to 0."""
    for name in DROPOUT_FIELDS:
        if isinstance(getattr(config, name, None), (int, float)):
            setattr(config, name, 0.0)
    inner = getattr(config, "attn_config", None)
    if inner is not None:
        inner.attn_pdrop = type(inner.attn_pdrop)(0)
    return config


def dropout_fields(config):
    found = {n: getattr(config, n) for n in DROPOUT_FIELDS if isinstance(getattr(config, n, None), (int, float))}
    if getattr(config, "attn_config", None) is not None:
        found["attn_config.attn_pdrop"] = config.attn_config.attn_pdrop
    return found
