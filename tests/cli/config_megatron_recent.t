Flags of Megatron-LM's examples of 2026: what is not modelled is said.
== args
llama-3-8b --gpu h100-80gb --megatron-args run.sh
== file run.sh
torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 --micro-batch-size 1 \
   --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params \
   --fsdp-double-buffer --use-nccl-ub --fsdp-manual-registration --empty-unused-memory-level 2 \
   --init-model-with-meta-device --profile --profile-step-start 4 --rotary-scaling-factor 40 \
   --moe-flex-dispatcher-backend deepep --moe-router-force-load-balancing \
   --hidden-dropout 0 --attention-dropout 0
== stdout ~
--fsdp-double-buffer is not modelled: weights are gathered into memory of their own
--use-nccl-ub is not modelled: NCCL's registered buffers are not counted
--empty-unused-memory-level is not modelled: the cache stays from step to step
of the model, which is MODEL's: --rotary-scaling-factor
no effect on memory or compute: --fsdp-manual-registration, --init-model-with-meta-device, --profile, --profile-step-start
