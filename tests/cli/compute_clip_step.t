== args
clip-vit-base-patch32 --gpu a100-80gb --mfu 0.5
== stdout ~
 0.000281 s 
