== args
llama-7b --gpus 8 --zero 2 --micro-batch 4 --offload-optimizer cpu --emit deepspeed
== stdout
{
  "train_batch_size": 32,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 1,
  "optimizer": {
    "type": "AdamW"
  },
  "zero_optimization": {
    "stage": 2,
    "reduce_bucket_size": 500000000,
    "allgather_bucket_size": 500000000,
    "overlap_comm": false,
    "stage3_prefetch_bucket_size": 50000000,
    "stage3_max_live_parameters": 1000000000,
    "stage3_param_persistence_threshold": 100000,
    "sub_group_size": 1000000000,
    "offload_optimizer": {
      "device": "cpu"
    }
  },
  "bf16": {
    "enabled": true
  },
  "gradient_clipping": 1.0
}
== stderr
memplan: note: not in it: --gpus; the launcher says it: --emit torchrun
