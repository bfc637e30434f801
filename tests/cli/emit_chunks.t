Stages that are all equal, but not their chunks: 8 layers are 3, 3 and 2.
== args
llama-7b --gpus 8 --framework megatron --pp 4 --vpp 3 --grad-accum 4 --emit megatron
== stdout ~
    --pipeline-model-parallel-layout 'Et*3|t*3|t*3|t*3|t*3|t*3|t*3|t*3|t*2|t*2|t*2|t*2L'
