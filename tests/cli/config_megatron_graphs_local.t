An implementation of CUDA graphs that is not modelled is refused where a flag says it.
== args
llama-7b --gpus 8 --megatron-args run.yaml
== file run.yaml
MODEL_ARGS:
  --tensor-model-parallel-size: 2
  --bf16: true
  --enable-cuda-graph: true
== stderr ~
cuda_graph_impl 'local' is not modelled yet
== exit
3
