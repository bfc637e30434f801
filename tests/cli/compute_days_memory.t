Two GPUs are fast enough, and more are needed to hold it.
== args
compute llama-2-13b --zero 3 --tokens 1B --days 30 --json
== stdout ~
"deadline_met": true
"deadline_too_large": false
"fits": true
