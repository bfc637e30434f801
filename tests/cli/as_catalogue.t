== args
llama-7b --as mistral
== stderr ~
leave --as out, or name a file
== exit
2
