== args
compute vit-large-patch16-224 --json
== stdout ~
a patch counts as one token, and the class token too
