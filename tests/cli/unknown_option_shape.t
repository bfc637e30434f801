== args
llama-7b --num-layers 8
== stderr
memplan: unknown option '--num-layers'
  hint: shapes stand in the model's config.json, not among the options
try 'memplan help estimate'
== exit
2
