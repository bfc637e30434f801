== args
mpt-7b --attention flash
== stderr ~
--attention: Hugging Face's layers have no flash attention for this family
hint: use --attention eager
== exit
3
