A law without a loss does not say which model reaches one.
== args
compute --target-loss 2 --law hoffmann-1
== stdout ~
loss 2.000 by besiroglu
  - hoffmann-1 gives no loss: sizes for the target are besiroglu's (--scaling-law)
