== args
llama-7b --gpus 8 --framework torchtitan --optimizer lion --emit torchtitan
== stderr
memplan: --optimizer: optimizer 'lion' has no word in a file of torchtitan
  hint: the file says 'adamw': ask for that, or for another program's file
== exit
3
