== args
models qwen2-vl-2b --part all
== stdout ~
qwen2-vl-2b: 2.21B parameters (2,208,985,600), qwen2_vl
