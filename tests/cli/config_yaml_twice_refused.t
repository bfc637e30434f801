LLaMA-Factory and NeMo read by OmegaConf, which takes no key twice.
== args
llama-7b --training-args run.yaml
== file run.yaml
model_name_or_path: huggyllama/llama-7b
stage: sft
finetuning_type: lora
lora_rank: 8
cutoff_len: 2048
lora_rank: 16
== stderr ~
run.yaml:6:1: error: a key twice
its program refuses the file; the first is on line 4
== exit
3
