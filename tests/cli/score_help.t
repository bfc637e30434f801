== args
help score
== stdout ~
--by KEY
--limit-median X
