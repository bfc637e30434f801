== args
explain gpt2 --find micro_batch
== exit
2
== stderr ~
'explain' has no option '--find'
'memplan estimate' has it
