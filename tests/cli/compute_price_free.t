A price of 0 is a price: nothing is paid, which is not that none is known.
== args
compute --params 7B --tokens 1B --price 0 --json
== stdout ~
"cost_usd": 0,
"price_usd_h": 0,
