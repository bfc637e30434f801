== args
llama-7b --every-gpu
== stderr ~
'memplan compute' has it
== exit
2
