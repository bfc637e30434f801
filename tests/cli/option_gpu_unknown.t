== args
llama-7b --gpu h100-80bg
== stderr ~
memplan: --gpu: 
hint: 
h100-80gb
== exit
2
