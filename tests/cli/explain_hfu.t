MFU by the other convention and HFU unfold as MFU does.
== args
explain llama-7b --gpus 64 --zero 3 --recompute full
== stdout ~
  MFU, full =
        MFU * FLOPs per token, attention scores whole / FLOPs per token
  HFU =
        MFU * hardware FLOPs / model FLOPs
