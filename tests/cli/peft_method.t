== args
llama-7b --framework hf --peft a.json
== file a.json
{"peft_type": "ADALORA", "r": 8}
== stderr
a.json:1:15: error: /peft_type: peft_type 'ADALORA' is not modelled
    1 | {"peft_type": "ADALORA", "r": 8}
      |               ^
  hint: known are LORA, IA3, PROMPT_TUNING, P_TUNING, PREFIX_TUNING
== exit
3
