== args
version
== stdout
memplan 0.1.0
