== args
clip-vit-base-patch32 --gpu a100-80gb
== stdout ~
 0.000281 s 
