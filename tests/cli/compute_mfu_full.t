By the other convention attention scores count whole: 5.78e21 FLOP for 5.56e21.
== args
compute llama-7b --zero 3 --gpus 64
== stdout ~
  MFU                       42.2%  predicted; of 312.0 dense TFLOP/s
  MFU, full                 43.9%  attention scores counted whole
  HFU                       42.2%  recomputation counted
