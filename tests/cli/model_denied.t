== args
secret.json
== denied secret.json
== stderr
memplan: cannot read 'secret.json': Permission denied
== exit
4
