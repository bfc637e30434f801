TRL's trainers offload checkpoints, where nothing else is said of them.
== args
llama-7b --training-args run.yaml --json
== file run.yaml
learning_rate: 1.0e-5
per_device_train_batch_size: 2
max_length: 2048
bf16: true
activation_offloading: true
== stdout ~
"recompute": "full"
"offload_activations": "cpu"
