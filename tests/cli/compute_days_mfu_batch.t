At an MFU that is given GPUs still share a batch that is held: 18 cannot share 64.
== args
compute llama-2-7b --zero 3 --days 30 --mfu 0.4 --global-batch 64
== stdout ~
  GPUs needed                 32  for 30 days
on 32 GPUs
with its own memory; global_batch is held
