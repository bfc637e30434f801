An option may be written as on the line.
== args
help --zero
== stdout
--zero N

  ZeRO stage (fsdp: 2 shards gradients, 3 everything)

  value    a whole number, 0 to 3
  default  0; fsdp, fsdp2 3; megatron 1
  in JSON  "zero"
