Stages that are not all equal, and not only at an end.
== args
llama-7b --gpus 8 --framework megatron --pp 4 --pipeline-layers 7,9,7,9 --grad-accum 4 --emit megatron
== stdout ~
    --pipeline-model-parallel-layout 'Et*7|t*9|t*7|t*9L'
