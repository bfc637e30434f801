The other copy of DualPipe's stages is at the pipeline's other end.
== args
explain llama-2-7b --framework megatron --pp 4 --gpus 64 --tp 2 --grad-accum 8 --schedule dualpipe
== stdout ~
  shards: one copy of the states (zero) = 16 ranks
        stride 2, on both ranks of its stages; 4 such groups
      = ranks 0, 2, 4 ... 62: 4 nodes
