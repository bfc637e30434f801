Modules whose activations wait on the CPU: what of layers is left, what is back, how much moves.
== args
explain mixtral-8x7b --framework megatron --gpu h100-80gb --gpus 16 --tp 2 --ep 4 --pp 2 --grad-accum 4 --micro-batch 1 --seq-len 4096 --offload-modules core_attn,attn_proj,expert_fc1,moe_act --fast
== stdout ~
left of layers whose modules' tensors are on the host =
= 15 * 218530304
back from the host ahead of its backward =
= 234881024
offload: in host memory, pinned, one GPU
= 6308233216 * 2
offload: moved to the host in a step, one GPU
what modules keep =
= 5771362304 * 4
offload: moved from the host in a step, one GPU
transfers to and from the host =
