Lightning's 16 bits, which another section says again by its name.
== args
llama-2-7b --megatron-args run.yaml --json
== file run.yaml
trainer:
  devices: 8
  precision: 16
model:
  micro_batch_size: 1
  precision: ${training.trainer.precision}
== stdout ~
"precision": "fp16-mixed",
