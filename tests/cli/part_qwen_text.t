== args
models qwen2-vl-72b
== stdout ~
qwen2-vl-72b: 72.7B parameters (72,706,203,648), qwen2_vl_text
