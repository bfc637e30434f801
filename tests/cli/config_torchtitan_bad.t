== args
llama-7b --gpus 8 --torchtitan a.toml
== file a.toml
[training]
seq_len = 2048
[training]
== stderr
a.toml:3:2: error: 'training' is there already
    3 | [training]
      |  ^
  hint: the first is on line 1: keep one of them
== exit
3
