== args
check --cases c.json
== file c.json
{"cases": [
  {"name": "big", "model": "no-such-model-at-all"}
]}
== stderr ~
c.json:2:
error: /cases/0/model: 
== exit
3
