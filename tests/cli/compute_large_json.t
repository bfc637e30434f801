== args
compute llama-7b --gpus 64 --json
== stdout ~
"fits": false
"step_time": [
"key": "matrix_products"
"same_loss": {
