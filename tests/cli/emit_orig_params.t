== args
llama-7b --gpus 8 --framework fsdp --use-orig-params false --emit training-args
== stdout ~
"version": 1
"use_orig_params": false
== stderr
memplan: note: not in it: --gpus; the launcher says it: --emit torchrun
