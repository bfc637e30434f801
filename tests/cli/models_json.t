== args
models --json
== stdout ~
"name": "llama-7b"
