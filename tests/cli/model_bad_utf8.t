The caret counts characters, not bytes.
== args
u.json
== file u.json
{"name": "Größe", "hidden_size": }
== stderr ~
u.json:1:
    1 | {"name": "Größe", "hidden_size": }
      |                                  ^
== exit
3
