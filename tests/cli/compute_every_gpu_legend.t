The legend is of marks and orders that are there.
== args
compute --params 13B --tokens 260B --days 7 --every-gpu
== stdout ~

the cheapest first; prices are indicative and dated: memplan gpus NAME
