== args
gpus h100-80gb --json
== stdout ~
h100-80gb
