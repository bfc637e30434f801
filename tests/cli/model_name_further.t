== args
Llama-2-7b-chat-hf
== stderr
memplan: no file and no model is called 'Llama-2-7b-chat-hf'
  hint: did you mean 'llama-2-7b'? 'memplan models' lists all
== exit
3
