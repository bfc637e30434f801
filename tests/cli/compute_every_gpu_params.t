Without a model nothing is said to fit, and nothing not to.
== args
compute --params 13B --tokens 260B --days 7 --every-gpu --format csv
== stdout ~
gpu,fits,late,gpus,mfu
gh200-96gb,,false,
