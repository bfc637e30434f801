A name that is another matrix in every class, of one whose modules are not listed.
== args
whisper-small --training-args run.yaml
== file run.yaml
adapter: lora
lora_r: 8
lora_target_modules: [q_proj, v_proj, out_proj]
bf16: true
== stderr
memplan: --lora-targets: which matrices of a 'whisper' model out_proj are is not known (run.yaml: lora_target_modules)
  hint: write their own words: --lora-targets q,k,v,o,up,down
== exit
3
