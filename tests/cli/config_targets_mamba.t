Axolotl's adapters of Falcon-H1: of the state-space part too.
== args
model.json --ssm-kernel torch --training-args run.yaml
== file model.json
{"model_type": "falcon_h1", "hidden_size": 256, "intermediate_size": 512,
 "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
 "vocab_size": 1024, "max_position_embeddings": 512, "mamba_d_ssm": 512,
 "mamba_n_heads": 16, "mamba_d_head": 32, "mamba_n_groups": 1,
 "mamba_d_state": 32}
== file run.yaml
adapter: lora
lora_r: 32
lora_target_modules:
  - q_proj
  - k_proj
  - v_proj
  - o_proj
  - in_proj
  - gate_proj
  - up_proj
  - down_proj
bf16: auto
== stdout ~
model: 2.81M parameters, 340,992 trained (12.1180%), on 1 x a100-80gb
