One N for tokens and 6ND: the model's own, not its copies and adapters.
== args
llama-3.2-1b --framework hf --lora-rank 8 --lora-full-modules head
== stdout ~
6 x 1.24B parameters x 24.7B tokens
24.7B tokens, 20 per parameter
