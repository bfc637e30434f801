Latent attention's matrices by their names, of which PEFT's count is 5,312.
== args
ds.json --training-args run.yaml --json
== file ds.json
{
  "model_type": "deepseek_v3", "hidden_size": 96, "num_attention_heads": 6,
  "num_key_value_heads": 6, "intermediate_size": 208, "moe_intermediate_size": 48,
  "vocab_size": 512, "num_hidden_layers": 2, "n_routed_experts": 4,
  "num_experts_per_tok": 2, "first_k_dense_replace": 1, "q_lora_rank": 24,
  "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
  "v_head_dim": 12, "n_group": 1, "topk_group": 1
}
== file run.yaml
base_model: deepseek
adapter: lora
lora_r: 4
lora_target_modules: [q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj, o_proj]
sequence_len: 128
micro_batch_size: 1
bf16: true
== stdout ~
"trainable_parameters": 5312
