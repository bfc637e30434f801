Nothing to do: short help, and the status of bad usage.
== args
== stderr
Usage: memplan [COMMAND] MODEL [options]

  memplan llama-7b --zero 3 --gpus 64

try 'memplan help'
== exit
2
