Laws of language models say nothing of patches, which are tokens all the same.
== args
compute vit-large-patch16-224 --json
== stdout ~
"flops_6nd": null
"chinchilla": null
a patch counts as one token, and the class token too
