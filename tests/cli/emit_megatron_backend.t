FlashAttention where Transformer Engine would take cuDNN's, in Megatron's word.
== args
llama-3-8b --framework megatron --gpu h100-80gb --gpus 8 --attention-kernel flash2 --emit megatron
== stdout ~
    --attention-backend flash
== stderr
memplan: note: not in it: --gpu; no launch file says it
