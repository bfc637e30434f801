Bytes are whole numbers, also where the limit is a share of the GPU.
== args
check llama-7b --zero 3 --gpus 64 --min-headroom 5% --json
== stdout ~
      "limit": 4249333269,
