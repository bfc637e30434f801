== args
version --color always
== stdout
memplan 0.1.0
