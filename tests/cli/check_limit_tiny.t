== args
check llama-7b --max-memory 40
== stderr ~
has no limit '40'
write a size, such as 70GiB
== exit
2
