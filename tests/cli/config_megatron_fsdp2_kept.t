PyTorch's FSDP 2 under Megatron, whose weights stay whole from forward to backward.
== args
llama-7b --gpus 8 --megatron-args run.sh --json
== file run.sh
pretrain_gpt.py --bf16 --use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward
== stdout ~
"reshard_after_forward": false,
