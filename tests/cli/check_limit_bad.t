== args
check llama-7b --max-memory lots
== stderr ~
lots
== exit
2
