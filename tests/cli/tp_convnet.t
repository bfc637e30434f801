One error that leads on, not three.
== args
resnet-50 --gpus 8 --tp 2
== stderr
memplan: --tp: tp 2 of convolutions is not modelled
  hint: leave tp out: data parallelism is what they use
== exit
3
