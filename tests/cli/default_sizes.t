== args
cat.json --seq-len 128
== file cat.json
{ "model_type": "gemma3", "text_config": {} }
== stdout ~
the file gives no sizes: they are the defaults of 'gemma3_text'
