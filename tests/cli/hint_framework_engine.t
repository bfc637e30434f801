An engine and an implementation that are given have the last word: another
framework is no way out beside them.
== args
llama-7b --gpus 8 --engine ddp --implementation hf --zero 1
== stderr
memplan: --zero: zero 1 with engine 'ddp', which shards nothing
  hint: use --framework deepspeed (or fsdp for zero 2, 3); without --engine and --implementation beside it
== exit
3
