What the hint says is reached.
== args
compute --params 7B --law hoffmann-3 --target-loss 1.883
== stdout ~
loss 1.883 by hoffmann-3
