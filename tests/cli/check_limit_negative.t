== args
check llama-7b --max-cost -5
== stderr
memplan: 'max_cost': '-5' is out of range
  hint: write a number of 0 or more, such as 0.45 or 2000
try 'memplan help check'
== exit
2
