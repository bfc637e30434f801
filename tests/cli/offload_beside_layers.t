Mergers stand beside the layers they come after: what they keep is on the GPU, and of what goes to the host no part.
== args
qwen3-vl-2b --part vision --framework hf --recompute full --offload-activations cpu --fast --json
== stdout ~
"to_host_bytes": 204716064
