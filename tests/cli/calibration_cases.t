== args
check --cases c.json --calibration mine.json
== stderr
memplan: --cases takes no '--calibration' beside it
  hint: name a MODEL: it is of one GPU
try 'memplan help check'
== exit
2
