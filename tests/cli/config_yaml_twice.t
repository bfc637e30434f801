Of a key twice the last one is taken, as PyYAML and Megatron-LM's tests do.
== args
llama-7b --gpus 8 --megatron-args model_config.yaml
== file model_config.yaml
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  --tensor-model-parallel-size: 2
  --micro-batch-size: 4
  --micro-batch-size: 1
  --ffn-hidden-size: 11008
  --bf16: true
  --ffn-hidden-size: 11008
  --micro-batch-size: 2
  --hidden-dropout: 0
  --attention-dropout: 0
== stdout ~
2 a pass
--micro-batch-size is there twice, on lines 6 and 10: the last is taken, as by its program
--ffn-hidden-size is there twice, on lines 7 and 9: the last is taken, as by its program
