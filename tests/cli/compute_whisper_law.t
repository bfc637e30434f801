== args
compute whisper-small --json
== stdout ~
"chinchilla": null
