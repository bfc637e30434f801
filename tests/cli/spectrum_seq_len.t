== args
whisper-small --gpu a100-80gb --seq-len 3000
== stderr
memplan: --seq-len: seq_len 3000 for spectra, each of which makes 1500
  hint: leave it out: the model's file says how long they are; targets are as long as --decoder-seq-len
== exit
3
