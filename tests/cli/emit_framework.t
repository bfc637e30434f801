What the user did not choose is not what he reads first.
== args
llama-7b --gpus 8 --framework fsdp --emit deepspeed
== stderr
memplan: --framework: framework 'fsdp' has no word in a file of deepspeed
  hint: its own is --emit accelerate; or use --framework deepspeed
== exit
3
