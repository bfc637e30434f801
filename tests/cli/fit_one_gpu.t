ZeRO shares nothing on one GPU, and is no change that helps.
== args
llama-7b --gpu rtx-4090 --lora-rank 16
== stdout ~
  added options             GiB
  --allocator expandable  27.63  not yet
  --loss fused            27.40  not yet
  --recompute full        15.54  fits
  --optimizer adam8bit    27.83  not yet
