== args
gpus
== stdout ~
a100-80gb
h100-80gb
