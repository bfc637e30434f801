Hours that failures take are paid for: GPU-hours times the price are the cost.
== args
compute --params 7B --tokens 1T --gpu h100 --mfu 0.4 --price 2 --availability 0.8
== stdout ~
take 36,849 h100-80gb-hours
training 80.0% of the time
73,698 USD
