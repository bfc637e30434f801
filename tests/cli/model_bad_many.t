Twenty errors are enough.
== args
m.json
== file m.json
{"memplan": 1, "model_type": "llama",
"no_such_key_00": 1,
"no_such_key_01": 1,
"no_such_key_02": 1,
"no_such_key_03": 1,
"no_such_key_04": 1,
"no_such_key_05": 1,
"no_such_key_06": 1,
"no_such_key_07": 1,
"no_such_key_08": 1,
"no_such_key_09": 1,
"no_such_key_10": 1,
"no_such_key_11": 1,
"no_such_key_12": 1,
"no_such_key_13": 1,
"no_such_key_14": 1,
"no_such_key_15": 1,
"no_such_key_16": 1,
"no_such_key_17": 1,
"no_such_key_18": 1,
"no_such_key_19": 1,
"no_such_key_20": 1,
"no_such_key_21": 1,
"no_such_key_22": 1,
"no_such_key_23": 1,
"no_such_key_24": 1,
"no_such_key_25": 1,
"no_such_key_26": 1,
"no_such_key_27": 1,
"no_such_key_28": 1,
"no_such_key_29": 1}
== stderr ~
m.json:2:
memplan: and 
 more
== exit
3
