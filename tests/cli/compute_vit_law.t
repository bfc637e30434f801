== args
compute vit-large-patch16-224 --json
== stdout ~
"chinchilla": null
