A rack's GPUs are one domain of NVLink, nodes of it or not.
== args
explain llama-7b --gpu gb200 --gpus-per-node 4 --gpus 16 --tp 8
== stdout ~
joined by NVLink
