One that is not modelled is no bf16.
== args
llama-7b --gpu h100-80gb --gpus 8 --megatron-args run.yaml
== file run.yaml
mixed_precision: fp16_with_fp8_delayed_scaling_mixed
model:
  tensor_model_parallel_size: 2
== stderr
run.yaml:1:18: error: /mixed_precision: mixed_precision 'fp16_with_fp8_delayed_scaling_mixed' is not modelled
    1 | mixed_precision: fp16_with_fp8_delayed_scaling_mixed
      |                  ^
  hint: known are bf16_mixed, fp16_mixed and bf16_with_fp8_{delayed,current,subchannel}_scaling_mixed, bf16_with_mxfp8_mixed, bf16_with_nvfp4_mixed
== exit
3
