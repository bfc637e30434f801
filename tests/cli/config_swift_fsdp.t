ms-swift's file of FSDP, named by its script.
== args
qwen3-8b --training-args run.sh
== file run.sh
swift sft --tuner_type lora --torch_dtype bfloat16 --fsdp ./fsdp2.json
== stderr
run.sh:1:59: error: /fsdp: a file in 'fsdp', as ms-swift has it, is not read
    1 | ...type lora --torch_dtype bfloat16 --fsdp ./fsdp2.json
      |                                            ^
  hint: add its entries to those of this file: "fsdp" and "fsdp_config", in one JSON or YAML
== exit
3
