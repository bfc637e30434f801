== args
compute dit-xl-2
== stdout ~
  model   
