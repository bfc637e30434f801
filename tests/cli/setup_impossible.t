== args
llama-7b --gpus 64 --tp 3
== stderr ~
memplan: --tp: 
  hint: 
== exit
3
