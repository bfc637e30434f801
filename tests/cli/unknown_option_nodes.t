== args
llama-7b --num-nodes 8
== stderr
memplan: unknown option '--num-nodes'
  hint: --gpus counts those of all nodes, --gpus-per-node those of one
try 'memplan help estimate'
== exit
2
