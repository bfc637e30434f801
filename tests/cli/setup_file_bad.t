== args
llama-7b --setup s.json
== file s.json
{
  "zerro": 3
}
== stderr ~
s.json:2:
error: /zerro: 
zero
== exit
3
