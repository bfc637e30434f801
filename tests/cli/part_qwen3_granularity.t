== args
qwen3-vl-2b --part vision --recompute full --recompute-granularity 2
== stderr
memplan: --recompute-granularity: checkpoints of several layers, of which some have a merger of their own, are not modelled
  hint: leave recompute_granularity out
== exit
3
