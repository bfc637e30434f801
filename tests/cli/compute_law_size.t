Of a size the law that is asked for says how many tokens it wants.
== args
compute --params 7B --scaling-law hoffmann-3
== stdout ~
hoffmann-3: 7B parameters want 295B tokens, 42.2 each (here: 20.0)
