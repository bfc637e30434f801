ms-swift on Megatron Core, read as Megatron-LM's.
== args
llama-7b --megatron-args run.sh
== file run.sh
#!/bin/bash
# not swift sft
CUDA_VISIBLE_DEVICES=0,1 megatron sft \
    --model Qwen/Qwen3-8B \
    --tensor_model_parallel_size 2
== stderr
run.sh:1:1: error: ms-swift trains this with Megatron Core and defaults of its own, which are not read
    1 | #!/bin/bash
      | ^
  hint: write it as options: --framework megatron --tp 2, --seq-len, --micro-batch, --global-batch, --recompute
== exit
3
