== args
models llama-7b
== stdout ~
6,738,415,616
