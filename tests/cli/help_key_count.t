A count has examples where these are values of its own.
== args
help tokens
== stdout ~
  value    a whole number: 64, 13B, 260e9
