== args
compute clip-vit-base-patch32 --json
== stdout ~
a word's position counts as one token; the 50 of the image beside them do not
