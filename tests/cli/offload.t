== args
llama-7b --gpus 8 --zero 3 --offload-optimizer nvme --offload-params nvme --fast
== stdout ~
each GPU in a step: 12.55 GiB to disk, 12.55 GiB back
