== args
llama-7b --gpus 8 --zero 3 --find layers --format csv
== stdout ~
find,value,fits,parameters,num_hidden_layers,hidden_size,
layers,
true
layers,
false
