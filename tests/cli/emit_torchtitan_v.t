A V has two parts a rank.
== args
estimate llama-3-8b --framework torchtitan --gpus 8 --pp 2 --schedule dualpipe-v --recompute none --seq-len 4096 --emit torchtitan
== stdout ~
pipeline_parallel_schedule = "DualPipeV"
    ["layers.25", "layers.26", "layers.27", "layers.28", "layers.29", "layers.30", "layers.31", "norm", "output"]]
