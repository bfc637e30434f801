Other arguments do not matter.
== args
--version --frobnicate
== stdout
memplan 0.1.0
