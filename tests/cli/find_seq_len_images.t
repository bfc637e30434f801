Sequences begin where the image's tokens fit in.
== args
estimate qwen2-vl-7b --part all --find seq_len --gpus 64 --zero 3
== stdout ~
    8,320  78.95  fits, 0.20 free
