== args
llama-7b --gpus 16 --framework torchtitan --tp 2 --emit torchrun
== stdout
torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint $HEAD_NODE:29500 \
    -m torchtitan.train --job.config_file torchtitan.toml
== stderr
memplan: note: not in it: --framework; it is the program that is started
memplan: note: not in it: --tp; see --emit torchtitan
