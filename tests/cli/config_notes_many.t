What has no room among the assumptions is counted there.
== args
llama-7b --training-args run.yaml --fast --json
== file run.yaml
per_device_train_batch_size: 1
zz0: 1
zz1: 1
zz2: 1
zz3: 1
zz4: 1
zz5: 1
zz6: 1
zz7: 1
zz8: 1
zz9: 1
zz10: 1
zz11: 1
zz12: 1
zz13: 1
zz14: 1
zz15: 1
zz16: 1
zz17: 1
zz18: 1
zz19: 1
zz20: 1
zz21: 1
zz22: 1
zz23: 1
zz24: 1
zz25: 1
zz26: 1
zz27: 1
zz28: 1
zz29: 1
zz0: 1
zz1: 1
zz2: 1
zz3: 1
zz4: 1
zz5: 1
zz6: 1
zz7: 1
zz8: 1
zz9: 1
zz10: 1
zz11: 1
zz12: 1
zz13: 1
zz14: 1
zz15: 1
zz16: 1
zz17: 1
zz18: 1
zz19: 1
zz20: 1
zz21: 1
zz22: 1
zz23: 1
zz24: 1
zz25: 1
zz26: 1
zz27: 1
zz28: 1
zz29: 1
== stdout ~
run.yaml: zz0 is there twice, on lines 2 and 32
run.yaml: zz22 is there twice, on lines 24 and 54
more of launch files' entries and lines, for which there is no room here
