== args
bert-base --framework torchtitan
== stderr ~
implementation torchtitan has no encoders
hint: Hugging Face's layers may have it: use --framework hf, deepspeed or fsdp
== exit
3
