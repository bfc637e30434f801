== args
models --part text
== stderr ~
--part needs a MODEL
== exit
2
