A law without a loss does not say which model reaches one.
== args
compute --target-loss 2 --law kaplan
== stdout ~
loss 2.000 by besiroglu
  - kaplan gives no loss: sizes for the target are besiroglu's (--scaling-law)
