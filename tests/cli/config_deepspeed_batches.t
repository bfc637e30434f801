== args
llama-7b --gpus 8 --deepspeed ds.json
== file ds.json
{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 1}
== stderr
memplan: --global-batch: global_batch 32 is not micro_batch 3 x grad_accum 1 x dp 8 = 24 (ds.json: train_batch_size)
  hint: leave one of the three out, or use --global-batch 24
== exit
3
