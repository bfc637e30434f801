The key's spelling.
== args
help micro_batch
== stdout ~
--micro-batch 
  in JSON  "micro_batch"
