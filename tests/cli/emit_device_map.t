device_map is the loading code's: TrainingArguments are beside it.
== args
llama-7b --framework hf --schedule naive --gpus 4 --emit training-args
== stdout
{
  "per_device_train_batch_size": 1,
  "gradient_accumulation_steps": 1,
  "bf16": true,
  "fp16": false,
  "max_grad_norm": 1.0,
  "optim": "adamw_torch_fused"
}
== stderr
memplan: note: not in it: --gpus; the launcher says it: --emit torchrun
memplan: note: not in it: --schedule; the program's code or recipe says it
