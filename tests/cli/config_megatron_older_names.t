Older names, and Megatron-DeepSpeed's for experts.
== args
mixtral-8x7b --gpus 8 --megatron-args run.sh --json
== file run.sh
pretrain_gpt.py --bf16 --num-experts 8 --moe-expert-parallel-size 4 --moe-layer-recompute
== stdout ~
"ep": 4,
"recompute": "selective",
"recompute_modules": [
"core_attn",
"moe"
