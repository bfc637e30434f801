Measured rows are what 'memplan calibrate' fits.
== args
gpt2 --calibration rows.jsonl
== file rows.jsonl
{"id": "a", "kind": "throughput", "model": "gpt2", "measured": {"metric": "step_time_s", "value": 1}}
{"id": "b", "kind": "throughput", "model": "gpt2", "measured": {"metric": "step_time_s", "value": 1}}
== stderr
rows.jsonl: error: these are measured rows, not what is fitted to them
  hint: fit them: memplan calibrate rows.jsonl --json > fitted.json, then --calibration fitted.json
== exit
3
