The deadline decides the GPUs: that there is one is not assumed.
== args
compute --params 13B --tokens 260B --days 7
== stdout ~
on 215 GPUs
as many GPUs as finish in time (--gpus)
