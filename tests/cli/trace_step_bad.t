== args
trace gpt2 --step second
== stderr ~
--step: 'second' is none of: later first
== exit
2
