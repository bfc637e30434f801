== args
models gemma-3-4b --part all
== stdout ~
  27 x vision layer
