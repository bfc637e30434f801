None is known.
== args
compute --params 7B --tokens 1B --gpu gb300 --json
== stdout ~
"cost_usd": null,
"price_usd_h": null,
