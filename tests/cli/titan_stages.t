torchtitan under a pipeline: weights and gradients stay whole, embedding and head count as layers.
== args
llama-3.1-8b --framework torchtitan --gpus 16 --pp 4 --grad-accum 8 --recompute full --seq-len 2048 --fsdp-units layers --fast
== stdout ~
    held by the pipeline engine   0.60
peak in backward of head, at log-softmax, on stage 3 of 4
      1  8-16         1.96B
  - embedding and head count as a layer each
  - weights stay whole from the first forward to the last backward
  - gradients are whole to the end of the last backward
