== args
score r.jsonl --limit-median 5%
== file r.jsonl
{"id": "b", "group": "g", "kind": "oom", "model": "llama-7b", "setup": {"zero": 0}, "measured": {"fits": false}}
== stdout ~
measured runs
== exit
1
