Nemotron-H's list of layers without a Mamba layer has no out_proj to refuse: as PEFT counts.
== args
attends.json --framework hf --lora-rank 4 --json
== file attends.json
{
  "model_type": "nemotron_h", "layers_block_type": ["attention", "moe"],
  "vocab_size": 1024, "hidden_size": 256, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 64, "n_routed_experts": 4,
  "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 64
}
== stdout ~
"parameters": 896256,
"trainable_parameters": 9728
