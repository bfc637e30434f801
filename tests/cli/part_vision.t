== args
models clip-vit-base-patch32 --part vision
== stdout ~
clip-vit-base-patch32: 87.5M parameters (87,456,000), clip_vision_model
