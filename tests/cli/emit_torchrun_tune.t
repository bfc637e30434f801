torchtune's recipes have names of their own.
== args
llama-7b --framework torchtune --gpus 16 --lora-rank 16 --recompute full --emit torchrun
== stdout
tune run --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $HEAD_NODE:29500 lora_finetune_distributed \
    --config config.yaml batch_size=1 gradient_accumulation_steps=1 \
    tokenizer.max_seq_len=2048 enable_activation_checkpointing=True model.lora_rank=16
== stderr
memplan: note: not in it: --framework; it is the program that is started
memplan: note: not in it: --recompute; the program's code or recipe says it
memplan: note: not in it: --lora-rank; --emit peft writes the adapters' adapter_config.json
