== args
llama-7b --framework hf --peft a.json
== file a.json
{"peft_type": "P_TUNING", "num_virtual_tokens": 20, "encoder_reparameterization_type": "LSTM"}
== stderr ~
an encoder of prompts other than MLP is not modelled: an LSTM has weights and states of its own
hint: write "MLP", PEFT's default
== exit
3
