Where it is not tp, which is what Megatron takes.
== args
deepseek-v2-lite --gpus 64 --tp 2 --pp 4 --ep 16 --framework megatron --etp 1 --no-deterministic --grad-accum-fusion --emit accelerate
== stdout ~
  megatron_lm_tp_degree: 2
  megatron_lm_expert_model_parallel_size: 16
  megatron_lm_expert_tensor_parallel_size: 1
