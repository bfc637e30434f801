Axolotl's plugins, each by its name: Liger's is what its switches say.
== args
llama-7b --training-args run.yaml
== file run.yaml
plugins:
  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin
  - axolotl.integrations.liger.LigerPlugin
  - mine.Plugin
bf16: true
liger_rms_norm: true
== stdout ~
run.yaml: plugins: CutCrossEntropyPlugin is not modelled: see --loss fused, which keeps no logits either
run.yaml: plugins: mine.Plugin is not modelled
