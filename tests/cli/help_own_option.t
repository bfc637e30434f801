== args
help -- --format
== stdout
--format FORMAT

  what to write

  value    one of these words
  choices  table json csv markdown
  default  table
