== args
70b --gpus 8 --tp 8 --find micro_batch
== stdout ~
70b on 8 x a100-80gb: no micro_batch fits
too much
== exit
1
