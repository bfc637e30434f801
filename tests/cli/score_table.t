== args
score r.jsonl
== file r.jsonl
{"id": "a", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}

{"id": "b", "group": "g", "kind": "oom", "model": "llama-7b", "setup": {"zero": 0}, "measured": {"fits": false}}
{"id": "c", "group": "h", "kind": "memory", "model": "no-such", "setup": {}, "measured": {"metric": "peak_allocated", "bytes": 1}}
{"id": "d", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "x-needs": ["one thing", "another"], "measured": {"metric": "device_total", "bytes": 17600000000}}
{"id": "e", "group": "g", "kind": "throughput", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3, "mfu": 0.5}, "measured": {"metric": "mfu", "value": 0.5}}
== stdout
measured runs: 4 predicted, 1 skipped
Throughput is predicted: kernels and links as timed alone, put together as the framework runs them.

by group
  group        metric          rows  median    90 %   worst     bias  right
  g            peak_allocated     1   1.79%   1.79%   1.79%   +1.79%
  g            oom                1                                       1
  g            mfu                1   0.00%   0.00%   0.00%   +0.00%
  g (needs 1)  device_total       1  27.65%  27.65%  27.65%  +27.65%

overall, without the rows that need what no key says
  kind                    rows  median   90 %  worst    bias  right
  memory                     1   1.79%  1.79%  1.79%  +1.79%
  throughput                 1   0.00%  0.00%  0.00%  +0.00%
  oom                        1                                    1
  all that have an error     2   0.90%  1.79%  1.79%  +0.90%

what runs need that no setup key says
  - needs 1: one thing, another

the worst of memory
  row  group  metric           measured  predicted   error  why
  a    g      peak_allocated  16.39 GiB  16.68 GiB  +1.79%

the worst of throughput
  row  group  metric  measured  predicted   error  why
  e    g      mfu          0.5        0.5  +0.00%

skipped
  rows  reason
     1  there is no model 'no-such' in the catalogue
