What is trained in full and not known is told by name.
== args
llama-3.2-1b --training-args run.yaml
== file run.yaml
stage: sft
finetuning_type: lora
additional_target: embed_tokens,score
per_device_train_batch_size: 1
== stderr ~
/additional_target: 'score', trained in full, is not modelled
hint: known are embed_tokens, lm_head, norm and multi_modal_projector
== exit
3
