== args
models resnet-18-cifar
== stdout ~
    bn1.bias 
