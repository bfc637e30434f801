== args
compute resnet-50-cifar --json
== stdout ~
"laws": []
