What DeepSpeed has beside TrainingArguments is written inside of them.
== args
llama-7b --gpus 16 --zero 3 --offload-optimizer cpu --micro-batch 2 --grad-accum 4 --emit training-args
== stdout
{
  "per_device_train_batch_size": 2,
  "gradient_accumulation_steps": 4,
  "bf16": true,
  "fp16": false,
  "max_grad_norm": 1.0,
  "deepspeed": {
    "train_batch_size": 128,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "optimizer": {
      "type": "AdamW",
      "params": {
        "lr": "auto",
        "betas": "auto",
        "eps": "auto",
        "weight_decay": "auto"
      }
    },
    "zero_optimization": {
      "stage": 3,
      "reduce_bucket_size": 500000000,
      "allgather_bucket_size": 500000000,
      "overlap_comm": true,
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
}
== stderr
memplan: note: not in it: --gpus; the launcher says it: --emit torchrun
