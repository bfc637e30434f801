== args
models
== stdout ~
llama-7b
