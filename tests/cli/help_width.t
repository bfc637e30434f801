As wide as the terminal, in bold.
== args
help gpus
== tty
stdout 60
== stdout
Usage: memplan gpus [GPU]

the catalogue of GPUs, or one of them

[1mExamples:[0m
  # all of them
  memplan gpus
  # one, for scripts
  memplan gpus h100-80gb --json

[1mOutput:[0m
      --json                  the same as --format json
      --format FORMAT         what to write (svg: only
                              trace) (one of table, json,
                              csv, markdown, svg) [table]

[1mGeneral:[0m
  -h, --help                  show help and exit
  -V, --version               show the version and exit
  -q, --quiet                 no notes, only errors
      --color WHEN            colours (one of auto, always,
                              never) [auto]
