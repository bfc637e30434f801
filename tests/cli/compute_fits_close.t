What fits in an estimate fits here: by the closed form alone too much would be
reserved.
== args
compute mistral-7b-v0.1 --lora-rank 16 --base-dtype nf4 --gpu rtx-a6000 --json
== stdout ~
"fits": true
