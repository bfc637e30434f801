Remarks stand below their rows where there is no room beside them.
== args
gpt2
== tty
stdout 40
== env
NO_COLOR=1
== stdout ~
  throughput
    predicted; of 312.0 dense TFLOP/s
