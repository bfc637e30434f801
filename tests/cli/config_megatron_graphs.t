CUDA graphs of Megatron's layers are keys, whichever version's flags say so.
== args
mixtral-8x7b --gpus 8 --megatron-args run.yaml --json
== file run.yaml
MODEL_ARGS:
  --tensor-model-parallel-size: 2
  --expert-model-parallel-size: 4
  --bf16: true
  --use-distributed-optimizer: true
  --hidden-dropout: 0
  --attention-dropout: 0
  --moe-grouped-gemm: true
  --moe-token-dispatcher-type: alltoall
  --cuda-graph-impl: transformer_engine
  --cuda-graph-scope: "[attn moe_router]"
  --cuda-graph-warmup-steps: 0
== stdout ~
"cuda_graph": true
"cuda_graph_impl": "transformer_engine"
"cuda_graph_scope": [
"moe_router"
"cuda_graph_warmup_steps": 0
"cuda_graph_pool": 
"peak_step": "
captured after 0 steps without
