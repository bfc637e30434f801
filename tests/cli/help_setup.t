What a setup file may hold.
== args
help setup
== stdout ~
  value    a path, or '-' for standard input
  keys     gpu gpus gpus_per_node
 micro_batch 
'memplan help KEY' explains one.
