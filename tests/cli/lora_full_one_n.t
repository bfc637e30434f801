One N for tokens, 6ND and laws: the model's own, not its copies and adapters.
== args
llama-3.2-1b --framework hf --lora-rank 8 --lora-full-modules head
== stdout ~
6 x 1.24B parameters x 24.7B tokens
chinchilla: 1.24B parameters want 24.7B tokens, 20.0 each (here: 20.0)
24.7B tokens, 20 per parameter
