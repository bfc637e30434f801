== args
-V
== stdout
memplan 0.1.0
