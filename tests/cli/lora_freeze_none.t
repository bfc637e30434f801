== args
gemma-3-4b --part all --seq-len 1024 --freeze vision,text --lora-rank 16
== stderr ~
no linear is left: name fewer parts in --freeze
== exit
3
