== args
models llama-7b --calibration mine.json
== stderr
memplan: 'models' has no option '--calibration'
  hint: 'memplan estimate' has it
try 'memplan help models'
== exit
2
