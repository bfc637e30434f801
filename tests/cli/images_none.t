== args
gemma-3-4b --part all --images 0
== stderr ~
add --freeze vision,projector
== exit
3
