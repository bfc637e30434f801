== args
gpt2 --image 3x32x32
== stderr ~
'image' is given, but the model reads words
hint: leave it out; --seq-len is how long a text is
== exit
3
