== args
check llama-7b --min-headroom 150%
== stderr ~
'150%' is out of range
== exit
2
