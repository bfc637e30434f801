== args
llama-7b --find gpus --emit deepspeed --zero 3
== stderr
memplan: --find and --emit together
  hint: find the value, then emit a setup with it
try 'memplan help estimate'
== exit
2
