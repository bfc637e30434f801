== args
help gpus
== stdout
Usage: memplan gpus [GPU]

the catalogue of GPUs, or one of them

Examples:
  # all of them
  memplan gpus
  # one, for scripts
  memplan gpus h100-80gb --json

Output:
      --json                  the same as --format json
      --format FORMAT         what to write (svg: only trace) (one of table,
                              json, csv, markdown, svg) [table]

General:
  -h, --help                  show help and exit
  -V, --version               show the version and exit
  -q, --quiet                 no notes, only errors
      --color WHEN            colours (one of auto, always, never) [auto]
