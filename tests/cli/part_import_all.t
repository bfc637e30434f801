== args
models clip-vit-base-patch32 --import
== stderr ~
add --part text or --part vision
== exit
3
