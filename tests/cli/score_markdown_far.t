== args
score r.jsonl --format markdown
== file r.jsonl
{"id": "r00", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 14000000000}}
{"id": "r01", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 14100000000}}
{"id": "r02", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 14200000000}}
{"id": "r03", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 14300000000}}
{"id": "r04", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 14400000000}}
{"id": "r05", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 14500000000}}
{"id": "r06", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 14600000000}}
{"id": "r07", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 14700000000}}
{"id": "r08", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 14800000000}}
{"id": "r09", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 14900000000}}
{"id": "r10", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 15000000000}}
{"id": "r11", "group": "g", "kind": "memory", "model": "llama-7b", "setup": {"gpus": 64, "zero": 3}, "measured": {"metric": "peak_allocated", "bytes": 17600000000}}
== stdout
# measured runs: 12 predicted, 0 skipped

## by group

| group | metric | rows | median | 90 % | worst | bias | right |
| :-- | :-- | --: | --: | --: | --: | --: | --: |
| g | peak_allocated | 12 | 23.13% | 27.06% | 27.97% | +21.79% | |

## overall, without the rows that need what no key says

| kind | rows | median | 90 % | worst | bias | right |
| :-- | --: | --: | --: | --: | --: | --: |
| memory | 12 | 23.13% | 27.06% | 27.97% | +21.79% | |
| **all that have an error** | **12** | **23.13%** | **27.06%** | **27.97%** | **+21.79%** | |

## the worst of memory

| row | group | metric | measured | predicted | error | why |
| :-- | :-- | :-- | --: | --: | --: | :-- |
| r00 | g | peak_allocated | 13.04 GiB | 16.68 GiB | +27.97% | |
| r01 | g | peak_allocated | 13.13 GiB | 16.68 GiB | +27.06% | |
| r02 | g | peak_allocated | 13.22 GiB | 16.68 GiB | +26.16% | |
| r03 | g | peak_allocated | 13.32 GiB | 16.68 GiB | +25.28% | |
| r04 | g | peak_allocated | 13.41 GiB | 16.68 GiB | +24.41% | |
| r05 | g | peak_allocated | 13.50 GiB | 16.68 GiB | +23.55% | |
| r06 | g | peak_allocated | 13.60 GiB | 16.68 GiB | +22.71% | |
| r07 | g | peak_allocated | 13.69 GiB | 16.68 GiB | +21.87% | |
| r08 | g | peak_allocated | 13.78 GiB | 16.68 GiB | +21.05% | |
| r09 | g | peak_allocated | 13.88 GiB | 16.68 GiB | +20.24% | |
| r10 | g | peak_allocated | 13.97 GiB | 16.68 GiB | +19.43% | |
