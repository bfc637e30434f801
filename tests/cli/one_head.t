One of a thing is in the singular in a message too.
== args
one.json --tp 2 --gpus 2
== file one.json
{"vocab_size": 7, "model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 8, "n_positions": 1}
== stderr ~
1 attention head does not split over tp 2
== exit
3
