LLaMA-Factory on Megatron Core.
== args
qwen3-30b-a3b --training-args run.yaml
== file run.yaml
stage: sft
finetuning_type: full
template: qwen3_nothink
bf16: true
tensor_model_parallel_size: 1
pipeline_model_parallel_size: 4
expert_model_parallel_size: 2
== stderr
run.yaml:5:29: error: /tensor_model_parallel_size: LLaMA-Factory trains this with Megatron Core and defaults of its own, which are not read
    5 | tensor_model_parallel_size: 1
      |                             ^
  hint: write it as options: --framework megatron --tp 1 --pp 4 --ep 2, --seq-len, --micro-batch, --global-batch, --recompute
== exit
3
