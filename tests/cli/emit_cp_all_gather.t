How context parallelism sends, in Megatron's word.
== args
estimate llama-3-8b --framework megatron --gpus 8 --cp 4 --seq-len 8192 --cp-comm all_gather --emit megatron
== stdout ~
    --cp-comm-type all_gather
