The head and its loss alone on the last stage: a layout says it, no flag of Megatron's does.
== args
llama-7b --gpus 8 --framework megatron --pp 4 --pipeline-layers 11,11,10,0 --grad-accum 4 --emit megatron
== stdout ~
    --pipeline-model-parallel-layout 'Et*11|t*11|t*10|L'
