Collectives over PCIe that nobody timed on these cards are told to be derived.
== args
estimate llama-2-7b --gpu l40s --gpus 8 --zero 3 --recompute full
== stdout ~
  - collectives of more than 2 GPUs have 0.42 of a link over PCIe, as timed on RTX PRO 6000 (--intra-node-bandwidth)
