== args
llama-7b --compile --no-compile --json
== stdout ~
"compile": false
