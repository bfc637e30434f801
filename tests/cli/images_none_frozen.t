== args
gemma-3-4b --part all --images 0 --freeze vision,projector --fast
== stdout ~
sequences without images: the vision part's weights do no work
