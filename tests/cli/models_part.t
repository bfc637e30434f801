A file of more than the text part says so beside the count, as an estimate does.
== args
models gemma-3-4b
== stdout ~
gemma-3-4b: 3.88B parameters (3,880,263,168), gemma3_text
the text part alone, of a file that has a vision part too (--part)
