== args
score none.jsonl
== stderr
memplan: cannot read 'none.jsonl': no such file
== exit
4
