== args
llama-2-7b --framework litgpt
== stderr
memplan: --framework: unknown framework 'litgpt'
  hint: use --implementation litgpt
try 'memplan help estimate'
== exit
2
