== args
estimate llama-7b gpt2
== stderr
memplan: one operand too many: 'gpt2'
try 'memplan help estimate'
== exit
2
