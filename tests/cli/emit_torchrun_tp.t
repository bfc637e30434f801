== args
llama-2-7b --framework hf --tp 2 --gpus 2 --emit torchrun
== stderr
memplan: --tp: tp '2' has no word in a file of torchrun
  hint: the line is that of --tp 1: from_pretrained's tp_plan="auto" says it, in the script
== exit
3
