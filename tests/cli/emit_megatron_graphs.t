CUDA graphs are written as today's flags say them, part by part.
== args
llama-7b --gpus 8 --framework megatron --cuda-graph true --cuda-graph-scope mlp,attn --cuda-graph-warmup-steps 0 --emit megatron-args
== stdout ~
    --cuda-graph-impl transformer_engine \
    --cuda-graph-modules attn mlp \
    --cuda-graph-warmup-steps 0 \
