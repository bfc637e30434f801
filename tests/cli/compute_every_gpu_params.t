Without a model nothing is said to fit.
== args
compute --params 13B --tokens 260B --days 7 --every-gpu --format csv
== stdout ~
gpu,fits,late,gpus,mfu
