Without a model there is no count of attention.
== args
compute --params 7B --json
== stdout ~
  "mfu": 0.5,
  "mfu_full": null,
