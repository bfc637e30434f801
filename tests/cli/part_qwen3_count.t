== args
models qwen3-vl-30b-a3b --part all
== stdout ~
qwen3-vl-30b-a3b: 31.1B parameters (31,070,754,032), qwen3_vl_moe
