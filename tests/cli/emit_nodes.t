== args
llama-7b --gpus 12 --framework megatron --emit megatron
== stderr
memplan: --gpus: gpus '12' has no word in a file of megatron
  hint: nodes of 8 would not be full: use --gpus-per-node 6
== exit
3
