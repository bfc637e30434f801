A list whose layers do not suit another image.
== args
net.json --image 3x2x2
== file net.json
{"model_type": "convnet", "input": [3, 32, 32], "num_classes": 10, "layers": [
  {"type": "conv2d", "name": "conv1", "out": 64, "kernel": 3},
  {"type": "flatten"}, {"type": "linear", "out": 10}]}
== stderr ~
layer 1 ('conv1', conv2d) has a window of 3x3, but what comes in is 3x2x2
== exit
3
