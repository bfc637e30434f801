== args
models gemma-3-4b --import --part all
== stdout ~
vision part (siglip_vision_model): read from the file
