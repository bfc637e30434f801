== args
llama-7b --lora-rank 16 --base-dtype int4 --gptq-kernel triton_v2 --emit training-args
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
memplan: note: not in it: --lora-rank; --emit peft writes the adapters' adapter_config.json
memplan: note: not in it: --base-dtype; GPTQConfig says it where the model is loaded
memplan: note: not in it: --gptq-kernel; the code that loads the model chooses it
