The heaviest operations with their shape, rate and bound; messages with theirs.
== args
explain llama-7b --gpus 64 --zero 3
== stdout ~
down_proj
2048 x 4096 x 11008
TFLOP/s, by products
TFLOP/s of 2.5 times as many
layer: copies of the engine, in these
between replicas
all-gather of
times * max(0, message - what hides it)
  MFU =
        tokens per step * FLOPs per token / (step time * GPUs * peak)
  step time =
        sum over the parts below
  layer: matrix products =
        micro-batches * blocks * seconds in each
= 1 * 32 *
between replicas, what is left: layer, forward
