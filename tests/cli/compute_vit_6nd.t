== args
compute vit-large-patch16-224 --json
== stdout ~
"flops_6nd": null
