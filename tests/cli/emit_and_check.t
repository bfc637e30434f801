A launch file is written in its program's own format, or not at all.
== args
llama-7b --zero 3 --emit deepspeed --check
== stderr
memplan: --check and --emit together
  hint: check first, without --emit
try 'memplan help estimate'
== exit
2
