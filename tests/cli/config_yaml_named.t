A script that hands its YAML to the program has no flag to be read.
== args
qwen3-8b --training-args run.sh
== file run.sh
NPROC_PER_NODE=2 \
swift sft examples/sft.yaml
== stderr
run.sh:1:1: error: a configuration is an object, not a string
    1 | NPROC_PER_NODE=2 \
      | ^
  hint: there is no flag in it, and no 'key: value': where a script names a file of these, give that
== exit
3
