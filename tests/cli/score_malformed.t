== args
score r.jsonl
== file r.jsonl
{"id": "a", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}

{"id": "x",
{"id": "y", "group": "g", "kind": "mem", "model": 1, "setup": [], "rnak": "max", "measured": {"metric": "x"}}
== stderr
r.jsonl:3:12: error: expected a key in double quotes, found the end of the text
    3 | {"id": "x",
      |            ^
  hint: the '{' on this line is not closed
r.jsonl:4:35: error: /kind: 'kind' is not 'mem'
    4 | {"id": "y", "group": "g", "kind": "mem", "model": 1, "setup": [], "r...
      |                                   ^
  hint: write one of: memory throughput fit oom
r.jsonl:4:51: error: /model: a model is a name or a specification
    4 | ..., "group": "g", "kind": "mem", "model": 1, "setup": [], "rnak": "max...
      |                                            ^
  hint: write "llama-7b" or {"model_type": ...}
r.jsonl:4:63: error: /setup: a setup is an object of keys
    4 | ...g", "kind": "mem", "model": 1, "setup": [], "rnak": "max", "measured...
      |                                            ^
r.jsonl:4:75: error: /rnak: there is no key 'rnak' here
    4 | ..."mem", "model": 1, "setup": [], "rnak": "max", "measured": {"metric"...
      |                                            ^
  hint: did you mean 'rank'?
== exit
3
