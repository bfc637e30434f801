A folder does not hide the catalogue's model.
== args
llama-7b
== folder llama-7b
== stdout ~
llama-7b
