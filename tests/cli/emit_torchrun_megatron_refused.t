What was asked for is named, not what it is written by.
== args
llama-7b --framework megatron --gpus 8 --optimizer lamb --emit torchrun
== stderr
memplan: --optimizer: optimizer 'lamb' has no word in a file of torchrun
  hint: the file says 'adamw': ask for that, or for another program's file
== exit
3
