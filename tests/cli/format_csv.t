== args
llama-7b --format csv
== stdout ~
,
