== args
completion bash
== stdout ~
complete -o filenames -F _memplan memplan
llama-7b
h100-80gb
--micro-batch
--no-compile
    --optimizer)
