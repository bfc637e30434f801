FSDP 2 cuts experts between experts, and what is padded is said.
== args
mixtral-8x7b --framework fsdp --engine fsdp2 --gpus 16 --seq-len 512
== stdout ~
    weights                             21.37
  communication       480.9 GiB  sent by each GPU in a step
  - FSDP 2 cuts a layer's 8 experts between experts: 16 ranks gather and reduce as much as 16 (--shard-degree 8, or --engine fsdp)
