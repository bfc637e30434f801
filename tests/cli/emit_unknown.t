== args
llama-7b --emit slurm
== stderr
memplan: --emit: 'slurm' is none of: deepspeed torchtitan megatron accelerate torchrun training-args megatron-args peft
try 'memplan help estimate'
== exit
2
