An encoder's tensor parallelism is answered as it is asked for.
== args
bert-large --framework megatron --tp 2
== stdout ~
dp 1, tp 2, pp 1, zero 1 (megatron)
  - no sequence parallelism beside tp: of an encoder it is not modelled (--sequence-parallel)
