== args
llama-4-scout --framework megatron --tp 2 --ep 8 --gpus 64
== stderr
memplan: --implementation: implementation megatron has no router scores on the input of experts
  hint: Hugging Face's layers may have it: use --framework hf, deepspeed or fsdp and --tp 1 and --ep 1
== exit
3
