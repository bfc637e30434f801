Chunks that go round the ranks are named part by part, as many as there are.
== args
estimate llama-3-8b --framework torchtitan --gpus 8 --pp 2 --vpp 4 --schedule zb-interleaved --recompute none --seq-len 4096 --emit torchtitan
== stdout ~
pipeline_parallel_schedule = "InterleavedZeroBubble"
module_fqns_per_model_part = [["tok_embeddings", "layers.0", "layers.1", "layers.2", "layers.3"],
    ["layers.29", "layers.30", "layers.31", "norm", "output"]]
