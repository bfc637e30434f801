== args
check llama-7b --max-memory 40
== stderr ~
'max_memory': '40' is no limit
write a size, such as 70GiB
== exit
2
