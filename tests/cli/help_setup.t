What a setup file may hold.
== args
help setup
== stdout ~
  value    a path, or '-' for standard input
  keys     gpu gpus gpus_per_node
 grad_accum seq_len
'memplan help KEY' explains one.
