What PEFT prints: trainable params: 19,988,480 || trainable%: 0.2958.
== args
llama-7b --lora-rank 8 --fast
== stdout ~
llama-7b: 6.76B parameters, 19,988,480 trained (0.2958%), on 1 x a100-80gb
