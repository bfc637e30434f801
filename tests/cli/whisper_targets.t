== args
whisper-base --decoder-seq-len 449
== stderr ~
memplan: 
beyond the model's 448 learned positions
== exit
3
