== args
models dit-xl-2
== stdout ~
    norm1.linear.bias 
