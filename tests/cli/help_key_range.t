A count that takes no 64 has its range, in the words of its refusal.
== args
help peak_flops
== stdout ~
  value    a whole number, 1000000 to 9e+18
