Adapters in fp32 over bf16 under torch_autocast: gathered each in its own type,
494,032,768 frozen weights * 2 + 8,798,208 of adapters * 4.
== args
explain qwen2.5-0.5b --gpus 8 --zero 3 --framework deepspeed --lora-rank 16 --precision bf16-amp --lora-dtype fp32 --base-dtype bf16 --seq-len 512 --fast
== stdout ~
    kept from forward to backward = 975.9 MiB (1,023,258,368 B)
