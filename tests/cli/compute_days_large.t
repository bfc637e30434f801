By time alone a number is enough; that the setup does not fit there is said
beside it.
== args
compute llama-7b --days 10
== stdout ~
 days, but no number that is in time fits in memory
the setup does not fit on these GPUs
