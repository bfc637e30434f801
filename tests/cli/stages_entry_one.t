== args
llama-7b --pp 2 --pipeline-layers 32
== stderr
memplan: --pipeline-layers: pipeline_layers has 1 entry for pp 2
  hint: give 2 numbers that add up to 32, or use --pp 1
== exit
3
