No unit is read behind a speed.
== args
llama-7b --intra-node-bandwidth 600GB
== stderr
memplan: --intra-node-bandwidth: 'intra_node_bandwidth' takes a whole number, not '600GB'
  hint: these are bytes a second: such as 300e9
try 'memplan help estimate'
== exit
2
