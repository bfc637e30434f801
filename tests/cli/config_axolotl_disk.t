Axolotl's disk is the CPU's memory: its own checkpoints on a disk are out of reach.
== args
llama-7b --training-args run.yaml --json
== file run.yaml
base_model: huggyllama/llama-7b
sequence_len: 2048
micro_batch_size: 1
bf16: true
gradient_checkpointing: true
activation_offloading: disk
== stdout ~
"recompute": "full"
"offload_activations": "cpu"
moves activations to the CPU's memory, not to a disk
