== args
llama-7b --zero 3 --emit deepspeed --json
== stderr
memplan: --json and --emit together
  hint: the launch file has its program's own format
try 'memplan help estimate'
== exit
2
