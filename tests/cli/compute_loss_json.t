Without a model nothing fits, nor does it not.
== args
compute --budget 1e24 --inference-tokens 1T --json
== stdout ~
"fits": null
"step_time": []
"same_loss": {
"served_flops"
