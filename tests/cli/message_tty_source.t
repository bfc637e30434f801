... and the text that a mistake is in stays as it is.
== args
llama-7b --setup s.json
== tty
stderr 50
== file s.json
{"zero": 3, "gpus": 8, "precision": "bf16_mixed_with_something_else_that_is_long"}
== stderr
s.json:1:37: [1;31merror:[0m /precision: unknown precision
    'bf16_mixed_with_something_else_that_is_l'
    1 | {"zero": 3, "gpus": 8, "precision": "bf16_mixed_with_something_else_...
      |                                     ^
  hint: use one of bf16-mixed, fp16-mixed,
        bf16-amp, fp16-amp, bf16, fp16, fp32,
        tf32, fp8-mixed, fp4-mixed
== exit
3
