A word that begins like a number is one all the same.
== args
llama-7b --gpus 8 --framework torchtitan --pp 2 --schedule 1f1b --grad-accum 4 --emit torchtitan
== stdout ~
pipeline_parallel_schedule = "1F1B"
pipeline_parallel_microbatch_size = 1
