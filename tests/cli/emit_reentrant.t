FSDP's own checkpoints are not reentrant: the model's are, in gradient_checkpointing_kwargs.
== args
llama-7b --gpus 8 --framework fsdp --engine fsdp2 --recompute full --recompute-reentrant true --emit training-args
== stdout ~
"gradient_checkpointing": true
"use_reentrant": true
== stderr
memplan: note: not in it: --gpus; the launcher says it: --emit torchrun
