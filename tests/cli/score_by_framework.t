== args
score r.jsonl --by framework
== file r.jsonl
{"id": "a", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}
{"id": "b", "group": "g", "kind": "oom", "model": "llama-7b", "setup": {"zero": 0}, "measured": {"fits": false}}
== stdout
measured runs: 2 predicted, 0 skipped

by group
  group                metric          rows  median   90 %  worst    bias  right
  framework deepspeed  peak_allocated     1   1.79%  1.79%  1.79%  +1.79%
  framework deepspeed  oom                1                                    1

overall, without the rows that need what no key says
  kind                    rows  median   90 %  worst    bias  right
  memory                     1   1.79%  1.79%  1.79%  +1.79%
  oom                        1                                    1
  all that have an error     1   1.79%  1.79%  1.79%  +1.79%

the worst of memory
  row  group  metric           measured  predicted   error  why
  a    g      peak_allocated  16.39 GiB  16.68 GiB  +1.79%
