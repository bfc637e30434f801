== args
llama-7b --import
== stderr ~
'memplan models' has it
== exit
2
