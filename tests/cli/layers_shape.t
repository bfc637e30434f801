== args
net.json
== file net.json
{"model_type": "convnet", "input": [3, 32, 32], "num_classes": 10, "layers": [
  {"type": "conv2d", "name": "conv1", "out": 64, "kernel": 3},
  {"type": "relu"},
  {"type": "linear", "name": "fc", "out": 10}
]}
== stderr
net.json:4:3: error: /layers/2: layer 3 ('fc', linear) wants a row of numbers, but what comes in is 64x30x30
    4 |   {"type": "linear", "name": "fc", "out": 10}
      |   ^
  hint: put a layer {"type": "flatten"} before it
== exit
3
