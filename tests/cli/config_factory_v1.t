A file of LLaMA-Factory's next version, which has objects for what is flat.
== args
llama-7b --training-args run.yaml
== file run.yaml
model: Qwen/Qwen3-4B
model_class: llm
peft_config:
  name: lora
  r: 16
dist_config:
  name: fsdp2
micro_batch_size: 1
== stderr
run.yaml:7:9: error: /dist_config/name: files of LLaMA-Factory's version 1 are not read
    7 |   name: fsdp2
      |         ^
  hint: write it as options: --framework fsdp --engine fsdp2 or --zero 3, --lora-rank, --base-dtype, --micro-batch, --seq-len, --precision
== exit
3
