ms-swift's adapters of the words' table.
== args
llama-7b --training-args run.sh
== file run.sh
swift sft --tuner_type lora --target_modules all-linear embed_tokens
== stderr
run.sh:1:46: error: /target_modules: adapters of 'embed_tokens' are not modelled
    1 | ... sft --tuner_type lora --target_modules all-linear embed_tokens
      |                                            ^
  hint: leave it out, or use "modules_to_save": ["embed_tokens"], which trains all of it
== exit
3
