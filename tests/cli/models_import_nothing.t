== args
models --import
== stderr ~
--import needs a MODEL
== exit
2
