== args
score r.jsonl
== file r.jsonl

== stdout
measured runs: 0 predicted, 0 skipped
== stderr
memplan: no row was predicted
  hint: each line is a run: id, group, kind, model, setup, measured
== exit
1
