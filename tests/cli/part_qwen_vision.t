== args
models qwen2.5-vl-7b --part vision
== stdout ~
qwen2.5-vl-7b: 677M parameters (676,550,144), qwen2_5_vl_vision
