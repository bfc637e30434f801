== args
llama-7b --framework fsdp --gpus 8 --freeze embed --freeze-trainable-layers 2 --json
== stdout ~
"trainable_parameters": 535842816
