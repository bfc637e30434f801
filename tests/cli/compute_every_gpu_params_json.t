== args
compute --params 13B --tokens 260B --days 7 --every-gpu --json
== stdout ~
"fits": null
