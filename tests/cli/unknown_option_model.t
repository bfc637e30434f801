The model is an operand.
== args
--model llama-7b
== stderr
memplan: unknown option '--model'
  hint: the model stands by itself: memplan llama-7b --gpus 8
try 'memplan help estimate'
== exit
2
