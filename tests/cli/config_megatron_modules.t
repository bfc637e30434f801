Of Megatron's fine-grained offloading modules are keys, what is not modelled is said.
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
  --fine-grained-activation-offloading: true
  --offload-modules: "[expert_fc1 moe_act mlp_norm fused_group_mlp]"
  --min-offloaded-tensor-size: 65536
  --activation-offload-fraction: 0.5
  --delta-offload-bytes-across-pp-ranks: 0
== stdout ~
"offload_activations": "cpu"
"offload_modules": [
"mlp_norm"
"min_offloaded_tensor_size": 65536
--offload-modules fused_group_mlp is not modelled: it stays on the GPU
--activation-offload-fraction is not modelled: all groups of the modules wait on the CPU
