With .json, from a folder that has no such file.
== args
llama-7b.json
== stdout ~
llama-7b
