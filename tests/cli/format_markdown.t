== args
llama-7b --format markdown
== stdout ~
| 
