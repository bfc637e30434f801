== args
check --cases c.json
== stderr
memplan: cannot read 'c.json': no such file
== exit
4
