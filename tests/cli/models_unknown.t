== args
models no-such-model-at-all
== stderr ~
no-such-model-at-all
== exit
3
