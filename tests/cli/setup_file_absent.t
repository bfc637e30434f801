== args
llama-7b --setup s.json
== stderr
memplan: cannot read 's.json': no such file
== exit
4
