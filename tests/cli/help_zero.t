== args
help zero
== stdout ~
--zero 
  in JSON  "zero"
