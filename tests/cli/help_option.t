--help anywhere, whatever else is wrong.
== args
llama-7b --zero 9 --frobnicate --help
== stdout
memplan: how much memory each GPU needs to train a model, and why

Usage: memplan [COMMAND] MODEL [options]

Examples:
  # ZeRO-3 on 64 GPUs
  memplan llama-7b --zero 3 --gpus 64
  # a config.json of yours
  memplan config.json --gpu h100-80gb --gpus 8 --framework fsdp
  # status 1 when it does not fit
  memplan llama-7b --lora-rank 16 --gpu rtx-4090 --check
  # the longest sequence that fits
  memplan llama-7b --zero 3 --gpus 8 --find seq_len
  # for scripts
  memplan llama-7b --tp 2 --pp 4 --gpus 64 --json

Commands:
  estimate    memory per GPU, whether it fits, time and cost (default)
  compute     FLOPs, GPU-hours, days, cost, compute-optimal size
  explain     every number of estimate: formula, numbers put in, source
  trace       the step, allocation by allocation, of the fullest stage
  check       assertions for CI: status 1 when one does not hold
  score       predictions against measured runs: the error by group
  calibrate   constants of your own cluster, fitted to measured steps
  models      the catalogue of models, or one of them
  gpus        the catalogue of GPUs, or one of them
  completion  a completion script for a shell
  help        help on a command or an option
  version     the version

Exit status:
  0  success
  1  a negative answer: check, estimate --check, --find, score --limit-median
  2  usage
  3  bad model or impossible setup
  4  reading or writing failed
  5  a number too large, or out of memory

'memplan help COMMAND' lists a command's options, 'memplan help OPTION'
explains one.
