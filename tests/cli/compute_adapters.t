Scaling laws are of models that are trained from the start: nothing is said of
an adapter's loss by them.
== args
compute llama-7b --lora-rank 16 --gpus 8 --tokens 1B --json
== stdout ~
"chinchilla": null
"laws": []
"loss": null
