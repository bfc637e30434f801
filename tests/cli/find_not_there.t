== args
explain gpt2 --find micro_batch
== stderr ~
'explain' has no option '--find'
'memplan estimate' has it
== exit
2
