Axolotl offloads checkpoints, with adapters too.
== args
llama-7b --training-args run.yaml --json
== file run.yaml
base_model: huggyllama/llama-7b
adapter: lora
lora_r: 16
lora_target_linear: true
sequence_len: 2048
micro_batch_size: 1
bf16: true
gradient_checkpointing: true
activation_offloading: true
== stdout ~
"recompute": "full"
"offload_activations": "cpu"
