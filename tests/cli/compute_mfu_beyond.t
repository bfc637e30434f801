Recomputed FLOPs are the GPU's too.
== args
compute llama-2-7b --zero 3 --gpus 8 --recompute full --mfu 0.9
== stdout ~
impossible: with what is recomputed, an MFU of 90% is 113% of the GPU's peak (--mfu)
