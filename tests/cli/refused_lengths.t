== args
llama-7b --lengths 500,60 --pp 2
== stderr ~
'lengths' do not ascend
'lengths' with a pipeline is not modelled yet
== exit
3
