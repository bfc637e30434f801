The JSON says it too.
== args
compute --params 7B --tokens 1T --days 1 --gpus 8 --every-gpu --json
== stdout ~
      "late": true,
