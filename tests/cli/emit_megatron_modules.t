Modules of Megatron's flags are written one by one, as argparse takes them.
== args
llama-7b --gpus 8 --framework megatron --recompute-modules layernorm,mlp --offload-modules core_attn,attn_proj --min-offloaded-tensor-size 64k --emit megatron-args
== stdout ~
    --recompute-modules layernorm mlp \
    --fine-grained-activation-offloading \
    --offload-modules core_attn attn_proj \
    --min-offloaded-tensor-size 64000 \
