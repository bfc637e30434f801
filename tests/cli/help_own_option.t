== args
help -- --format
== stdout
--format FORMAT

  what to write (svg: only trace)

  value    one of these words
  choices  table json csv markdown svg
  default  table
