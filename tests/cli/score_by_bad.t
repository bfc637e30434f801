== args
score r.jsonl --by colour
== stderr
memplan: --by: 'colour' is none of: group metric zero tp pp vpp cp ep recompute lora base_dtype precision optimizer offload_optimizer offload_params offload_activations framework
try 'memplan help score'
== exit
2
