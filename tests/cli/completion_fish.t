== args
completion fish
== stdout ~
complete -c memplan -l micro-batch -x
llama-7b
h100-80gb
