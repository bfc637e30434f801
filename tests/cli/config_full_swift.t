ms-swift's modules_to_save, several behind one flag.
== args
llama-3.2-1b --training-args run.sh --json
== file run.sh
swift sft --tuner_type lora --lora_rank 16 --target_modules q_proj v_proj --modules_to_save all-embedding lm_head --per_device_train_batch_size 1
== stdout ~
"parameters": 1762854912,
"trainable_parameters": 527040512
