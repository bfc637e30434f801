== args
qwen3-next-80b-a3b --ssm-kernel torch --gpus 64 --framework fsdp --precision bf16
== stdout ~
  - layers with a state as loops of small operations, which no utilisation here was measured with (--ssm-kernel)
