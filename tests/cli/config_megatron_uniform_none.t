Megatron takes steps of that many layers.
== args
llama-7b --gpus 8 --megatron-args run.sh
== file run.sh
pretrain_gpt.py --bf16 --recompute-granularity full --recompute-method uniform --recompute-num-layers 0
== stderr
run.sh:1:103: error: /recompute_num_layers: '--recompute-num-layers' takes a whole number, 1 or more
    1 | ...e-method uniform --recompute-num-layers 0
      |                                            ^
  hint: write the number itself
== exit
3
