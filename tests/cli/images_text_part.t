== args
gemma-3-4b --images 2
== stderr ~
add --part all: its file has a vision part too
== exit
3
