== args
gpt2 --gpu-memory 16GiB --find seq_len --json
== stdout ~
"schema": "memplan.find/1"
"find": "seq_len"
"extreme": "largest"
"fits": true
"value": 1024
"end": "the next is impossible: seq_len 1152 is beyond the model's 1024 learned positions"
"best": {
"headroom":
"next": null
"assumptions": [
