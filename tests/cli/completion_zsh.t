== args
completion zsh
== stdout ~
#compdef memplan
llama-7b
h100-80gb
--micro-batch=[
