== args
score r.jsonl --format csv
== file r.jsonl
{"id": "a", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}

{"id": "b", "group": "g", "kind": "oom", "model": "llama-7b", "setup": {"zero": 0}, "measured": {"fits": false}}
{"id": "c", "group": "h", "kind": "memory", "model": "no-such", "setup": {}, "measured": {"metric": "peak_allocated", "bytes": 1}}
{"id": "d", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "x-needs": ["one thing", "another"], "measured": {"metric": "device_total", "bytes": 17600000000}}
{"id": "e", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3, "mfu": 0.5}, "measured": {"metric": "mfu", "value": 0.5}}
== stdout ~
id,group,kind,metric,measured,predicted,error,needs,skipped
"one thing, another"
b,g,oom,oom,false,false,,,
