== args
whisper-base --seq-len 100
== stderr ~
memplan: 
spectra, each of which makes 1500
--decoder-seq-len
== exit
3
