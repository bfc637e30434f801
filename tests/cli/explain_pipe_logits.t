== args
explain bloom-1b7 --framework megatron-deepspeed --implementation megatron-local --gpus 8 --micro-batch 4 --global-batch 64 --precision fp16-mixed --zero 1
== stdout ~
    fp32 logits of earlier micro-batches, not let go
