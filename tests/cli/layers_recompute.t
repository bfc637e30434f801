== args
net.json --recompute full
== file net.json
{"model_type": "convnet", "input": [3, 32, 32], "num_classes": 10, "layers": [
  {"type": "flatten"}, {"type": "linear", "out": 10}]}
== stderr ~
recompute full of a list of layers is not modelled
hint: leave recompute out; a 'resnet' is checkpointed block by block
== exit
3
