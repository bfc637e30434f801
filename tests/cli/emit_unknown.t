== args
llama-7b --emit accelerate
== stderr
memplan: --emit: 'accelerate' is none of: deepspeed torchtitan megatron-args
try 'memplan help estimate'
== exit
2
