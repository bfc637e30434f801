== args
calibrate r.jsonl
== file r.jsonl
{"id": "a", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 8, "zero": 3}, "measured": {"metric": "mfu", "value": 45}}
== stderr
r.jsonl:1:142: error: /measured/value: an MFU is a share of the peak, at most 1
    1 | ... "measured": {"metric": "mfu", "value": 45}}
      |                                            ^
  hint: write 0.45 for 45 %
== exit
3
