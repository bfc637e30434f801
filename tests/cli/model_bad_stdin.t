== args
-
== stdin
{"model_type": "llama"
== stderr ~
<stdin>:2:
error: 
== exit
3
