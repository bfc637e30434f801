== args
llama-7b --attention sdpa --mask-per-head --quiet
== stdout ~
'mask_per_head' has no effect: no layer here has a mask
