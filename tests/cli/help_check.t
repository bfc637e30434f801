== args
help check
== stdout ~
Assertions:
      --max-memory BYTES
      --cases FILE
