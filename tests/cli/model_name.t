== args
llama-7b
== stdout ~
llama-7b
