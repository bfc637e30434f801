== args
models command-r-plus
== stdout ~
    k_norm 
