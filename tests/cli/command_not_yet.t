Promised, and not taken for a model; its options are not looked at.
== args
plan llama-7b --max-gpus 64
== stderr
memplan: 'plan' is not there yet in version 0.1.0
  hint: 'memplan help' lists the commands that are
== exit
2
