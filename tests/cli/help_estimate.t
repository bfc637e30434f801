Made from the tables; that it names what is in them.
== args
help estimate
== stdout ~
Usage: memplan [estimate] MODEL [options]
  memplan llama-7b --zero 3 --gpus 64
      --setup FILE
      --micro-batch 
      --[no-]compile
  -h, --help 
