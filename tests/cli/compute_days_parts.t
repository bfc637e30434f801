Where no number of whole nodes shares the batch, others are looked at.
== args
compute llama-2-7b --zero 3 --days 10 --global-batch 60
== stdout ~
  GPUs needed                  60  for 10 days: MFU
