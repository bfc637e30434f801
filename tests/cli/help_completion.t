== args
help completion
== stdout
Usage: memplan completion bash|zsh|fish

a completion script for a shell

Examples:
  memplan completion bash > ~/.local/share/bash-completion/completions/memplan

General:
  -h, --help                  show help and exit
  -V, --version               show the version and exit
  -q, --quiet                 no notes, only errors
      --color WHEN            colours (one of auto, always, never) [auto]
