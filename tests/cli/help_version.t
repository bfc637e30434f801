== args
help version
== stdout
Usage: memplan version

the version

Examples:
  # with the version of the JSON library
  memplan version --json

Output:
      --json                  the same as --format json
      --format FORMAT         what to write (svg: only trace) (one of table,
                              json, csv, markdown, svg) [table]

General:
  -h, --help                  show help and exit
  -V, --version               show the version and exit
  -q, --quiet                 no notes, only errors
      --color WHEN            colours (one of auto, always, never) [auto]
