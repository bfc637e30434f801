Another input; the stem stays ImageNet's, and with it the parameters.
== args
resnet-50 --image 3x32x32 --json
== stdout ~
"parameters": 25557032
    "image": "3x32x32"
