== args
llama-7b --gpus 8 --megatron-args run.sh
== file run.sh
torchrun pretrain_gpt.py \
  --tensor-model-parallel-size $TP
== stderr
run.sh:2:32: error: /tensor_model_parallel_size: '--tensor-model-parallel-size' is '$TP', which the file does not say
    2 |   --tensor-model-parallel-size $TP
      |                                ^
  hint: write the value itself
== exit
3
