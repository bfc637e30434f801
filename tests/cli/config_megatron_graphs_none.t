Flags beside CUDA graphs that there are none of say nothing.
== args
llama-7b --gpus 8 --megatron-args run.yaml --json
== file run.yaml
MODEL_ARGS:
  --tensor-model-parallel-size: 2
  --bf16: true
  --cuda-graph-impl: none
  --cuda-graph-modules: "[attn]"
  --cuda-graph-warmup-steps: 5
== stdout ~
"cuda_graph": false
"cuda_graph_pool": null
"peak_step": null
