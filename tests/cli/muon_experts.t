Tensors that torch's Muon refuses.
== args
mixtral-8x7b --optimizer muon --gpus 64 --framework fsdp --seq-len 512
== stdout ~
  - Muon takes experts and convolutions as matrices, as Keller Jordan's does; torch.optim.Muon refuses them (--optimizer)
