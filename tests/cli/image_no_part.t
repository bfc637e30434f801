A file's vision part takes images; its text part alone does not.
== args
qwen2.5-vl-3b --image 3x448x448
== stderr ~
'image' is given, but the model reads words
add --part all: its file has a vision part too
== exit
3
