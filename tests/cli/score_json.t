== args
score r.jsonl --json
== file r.jsonl
{"id": "a", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}

{"id": "b", "group": "g", "kind": "oom", "model": "llama-7b", "setup": {"zero": 0}, "measured": {"fits": false}}
{"id": "c", "group": "h", "kind": "memory", "model": "no-such", "setup": {}, "measured": {"metric": "peak_allocated", "bytes": 1}}
{"id": "d", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "x-needs": ["one thing", "another"], "measured": {"metric": "device_total", "bytes": 17600000000}}
{"id": "e", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3, "mfu": 0.5}, "measured": {"metric": "mfu", "value": 0.5}}
== stdout
{
  "schema": "memplan.score/1",
  "rows": [
    {
      "id": "a",
      "group": "g",
      "kind": "memory",
      "metric": "peak_allocated",
      "measured": 17600000000,
      "predicted": 17915238400,
      "error": 0.017911272727272776,
      "needs": null,
      "why": null
    },
    {
      "id": "b",
      "group": "g",
      "kind": "oom",
      "metric": "oom",
      "measured": false,
      "predicted": false,
      "error": null,
      "needs": null,
      "why": null
    },
    {
      "id": "d",
      "group": "g",
      "kind": "memory",
      "metric": "device_total",
      "measured": 17600000000,
      "predicted": 22466168545,
      "error": 0.27648684914772725,
      "needs": "one thing, another",
      "why": null
    },
    {
      "id": "e",
      "group": "g",
      "kind": "throughput",
      "metric": "mfu",
      "measured": 0.5,
      "predicted": 0.5,
      "error": 0,
      "needs": null,
      "why": null
    }
  ],
  "skipped": [
    {
      "id": "c",
      "reason": "there is no model 'no-such' in the catalogue"
    }
  ],
  "groups": [
    {
      "group": "g",
      "metric": "peak_allocated",
      "count": 1,
      "median": 0.017911272727272776,
      "p90": 0.017911272727272776,
      "worst": 0.017911272727272776,
      "bias": 0.017911272727272776,
      "accuracy": null
    },
    {
      "group": "g",
      "metric": "oom",
      "count": 1,
      "median": null,
      "p90": null,
      "worst": null,
      "bias": null,
      "accuracy": 1
    },
    {
      "group": "g",
      "metric": "mfu",
      "count": 1,
      "median": 0,
      "p90": 0,
      "worst": 0,
      "bias": 0,
      "accuracy": null
    },
    {
      "group": "g (needs one thing, another)",
      "metric": "device_total",
      "count": 1,
      "median": 0.27648684914772725,
      "p90": 0.27648684914772725,
      "worst": 0.27648684914772725,
      "bias": 0.27648684914772725,
      "accuracy": null
    }
  ],
  "kinds": [
    {
      "group": "memory",
      "metric": null,
      "count": 1,
      "median": 0.017911272727272776,
      "p90": 0.017911272727272776,
      "worst": 0.017911272727272776,
      "bias": 0.017911272727272776,
      "accuracy": null
    },
    {
      "group": "throughput",
      "metric": null,
      "count": 1,
      "median": 0,
      "p90": 0,
      "worst": 0,
      "bias": 0,
      "accuracy": null
    },
    {
      "group": "oom",
      "metric": null,
      "count": 1,
      "median": null,
      "p90": null,
      "worst": null,
      "bias": null,
      "accuracy": 1
    }
  ],
  "peers": [],
  "overall": {
    "group": "all",
    "metric": null,
    "count": 2,
    "median": 0.008955636363636388,
    "p90": 0.017911272727272776,
    "worst": 0.017911272727272776,
    "bias": 0.008955636363636388,
    "accuracy": null
  }
}
