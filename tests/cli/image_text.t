== args
resnet-50 --gpus 4 --micro-batch 64 --attention sdpa
== stdout ~
bf16-amp; images, 64 a pass, 256 a step
an image counts as one token
'attention' has no effect: convolutions have none
