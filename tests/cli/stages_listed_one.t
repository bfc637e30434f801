== args
llama-7b --pipeline-layers 16,16
== stderr
memplan: --pipeline-layers: pipeline_layers has 2 entries for pp 1
  hint: leave it out, or use --pp 2
== exit
3
