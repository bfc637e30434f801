== args
mamba2-1.3b --find layers --fast --json
== stdout ~
"num_attention_heads": null,
"intermediate_size": null,
"peak_block": "head",
"peak_layer": null,
