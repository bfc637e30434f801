== args
https://hub.example/meta-llama/Llama-2-7b-hf/raw/main/config.json
== stderr
memplan: no such file: 'https://hub.example/meta-llama/Llama-2-7b-hf/raw/main/config.json' (nothing is downloaded)
  hint: did you mean 'llama-2-7b'? 'memplan models' lists all
== exit
3
