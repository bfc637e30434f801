== args
llama-7b --gpus 8 --zero 3 --recompute full --find seq_len --fast
== stdout ~
llama-7b on 8 x a100-80gb: the longest sequence that fits has
that is beyond the model's own limit of 2,048 tokens
