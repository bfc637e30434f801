== stdin
{"_class_name": "Transformer2DModel", "norm_type": null}
== args
models -
== stderr ~
'norm_type' must be a string, not null
ada_norm_zero
== exit
3
