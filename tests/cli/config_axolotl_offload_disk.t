Of 0.9.2 to 0.11 it was a disk, which is said.
== args
llama-7b --training-args run.yaml --json
== file run.yaml
base_model: huggyllama/llama-7b
sequence_len: 2048
micro_batch_size: 1
bf16: true
gradient_checkpointing: offload_disk
== stdout ~
"recompute": "full"
"offload_activations": "cpu"
gradient_checkpointing 'offload_disk' moves activations to the CPU's memory since Axolotl 0.18; 0.9.2 to 0.11 write them to a disk: --offload-activations nvme
