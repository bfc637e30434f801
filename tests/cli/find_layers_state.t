A model without heads has none.
== args
mamba2-1.3b --find layers --fast
== stdout ~
 layers of 2048  
