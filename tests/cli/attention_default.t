== args
bloom-1b1 --fast
== stdout ~
- eager attention (--attention)
