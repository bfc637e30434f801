== args
score r.jsonl
== file r.jsonl

== stdout
measured runs: 0 predicted, 0 skipped
