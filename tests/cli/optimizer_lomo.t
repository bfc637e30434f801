== args
llama-7b --optimizer lomo
== stderr ~
optimizer 'lomo' is not modelled: it updates a weight when the next one's gradient comes
hint: use sgd; --optimizer-in-backward true comes near
== exit
2
