== args
compute whisper-small --json
== stdout ~
"chinchilla": null
a position of the source, two frames of the spectrum, counts as one token
