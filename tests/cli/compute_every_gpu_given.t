One GPU beside all of them.
== args
compute llama-7b --gpu h100 --every-gpu
== stderr ~
'gpu' is of one GPU
== exit
3
