== args
t5-base --attention flash
== stderr ~
--attention: Hugging Face's layers have no flash attention for this family
hint: use --attention sdpa
== exit
3
