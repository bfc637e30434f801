A line that is none, and a host that is there twice.
== args
llama-7b --hostfile hosts
== file hosts
worker-0 slots=8
worker-1: 8
worker-0 slots=4
== stderr
hosts:2:1: error: no host and its number of GPUs
    2 | worker-1: 8
      | ^
  hint: such as: worker-1: slots=8
hosts:3:1: error: this host is there already
    3 | worker-0 slots=4
      | ^
  hint: a host has one line, with all of its slots
== exit
3
