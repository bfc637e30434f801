== args
estimate gpt2 --framework deepspeed --zero 1 --gpus 8 --no-zero-grad-set-to-none
== stdout ~
  - 'zero_grad_set_to_none' has no effect: the engine frees or keeps gradients by itself
