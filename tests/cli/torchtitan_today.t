torchtitan compiles its loss beside its layers, and wraps embedding and head.
== args
llama-3.1-8b --framework torchtitan --gpus 8 --compile --fast
== stdout ~
  - each layer is wrapped, the embedding and the head (--fsdp-units)
  - layers compiled, and the loss, as torchtitan has it since March 2025 (--loss standard)
