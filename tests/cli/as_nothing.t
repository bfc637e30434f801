== args
models --as llama
== stderr ~
--as needs a MODEL
== exit
2
