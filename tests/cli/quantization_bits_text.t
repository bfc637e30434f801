== args
models net.json
== file net.json
{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
 "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
 "quantization_config": {"quant_method": 4, "bits": "4"}}
== stderr
net.json:3:42: error: /quantization_config/quant_method: 'quant_method' must be a string, not a number
    3 | ..."quantization_config": {"quant_method": 4, "bits": "4"}}
      |                                            ^
net.json:3:53: error: /quantization_config/bits: 'bits' must be a number, not a string
    3 | ...on_config": {"quant_method": 4, "bits": "4"}}
      |                                            ^
== exit
3
