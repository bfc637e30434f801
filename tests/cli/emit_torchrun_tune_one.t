== args
llama-7b --framework torchtune --emit torchrun
== stdout
tune run full_finetune_single_device \
    --config config.yaml batch_size=1 gradient_accumulation_steps=1 \
    tokenizer.max_seq_len=2048 enable_activation_checkpointing=False
== stderr
memplan: note: not in it: --framework; it is the program that is started
