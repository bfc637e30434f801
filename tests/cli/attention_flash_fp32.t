== args
llama-7b --precision fp32 --attention flash
== stderr ~
use --attention sdpa, whose memory-efficient kernel takes fp32
== exit
3
