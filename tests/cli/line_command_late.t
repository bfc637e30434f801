The command may follow options.
== args
--json models llama-7b
== stdout ~
"name": "llama-7b"
