== args
help version
== tty
stdout 80
== stdout
Usage: memplan version

the version

[1mExamples:[0m
  # with the version of the JSON library
  memplan version --json

[1mOutput:[0m
      --json                  the same as --format json
      --format FORMAT         what to write (svg: only trace) (one of table,
                              json, csv, markdown, svg) [table]

[1mGeneral:[0m
  -h, --help                  show help and exit
  -V, --version               show the version and exit
  -q, --quiet                 no notes, only errors
      --color WHEN            colours (one of auto, always, never) [auto]
