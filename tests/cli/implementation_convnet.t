== args
resnet-50 --framework torchtitan --gpus 8
== stderr
memplan: --implementation: implementation torchtitan has no convolutions
  hint: Hugging Face's layers may have it: use --framework hf, deepspeed or fsdp
== exit
3
