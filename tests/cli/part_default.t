== args
gemma-3-4b --seq-len 128
== stdout ~
the text part alone, of a file that has a vision part too (--part)
