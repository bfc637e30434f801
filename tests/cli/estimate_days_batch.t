An estimate asks which GPUs share the batch that is held, as compute does.
== args
llama-2-7b --zero 3 --days 10 --global-batch 60
== stdout ~
  GPUs needed                60  for 10 days: MFU
on 1 GPU
