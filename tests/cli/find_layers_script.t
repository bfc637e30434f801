The layers that are looked for are not those of the script.
== args
llama-7b --gpus 8 --megatron-args run.sh --gpu h100-80gb --find layers
== file run.sh
torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --bf16 \
   --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
   --ffn-hidden-size 11008 --swiglu --normalization RMSNorm \
   --position-embedding-type rope --untie-embeddings-and-output-weights \
   --vocab-size 32000 --seq-length 2048
== stdout
llama-7b on 8 x h100-80gb: the deepest model that fits has 39 layers
  layers  shape                                     GiB
      39  39 layers of 4096, 32 heads, MLP 11008  78.61  fits, 0.54 free  peak in loss of head, at fp32 logits
      40  40 layers of 4096, 32 heads, MLP 11008  80.52  1.37 too much    peak in loss of head, at fp32 logits
of 79.15 GiB on each h100-80gb; width, heads, MLP and vocabulary are held, layers vary
micro_batch 1, grad_accum 1, global_batch 4
88 candidates by the closed form, 0 impossible; 1 with the allocator

assumed (the option that says otherwise)
  - micro-batch 1 (--micro-batch)
  - optimizer adamw (--optimizer)
  - fused optimizer step (--optimizer-impl)
  - no activation recomputation (--recompute)
  - run.sh: of the model, which is MODEL's: --num-layers, --hidden-size, --num-attention-heads, --ffn-hidden-size, --swiglu, --normalization, --position-embedding-type
  - run.sh: of the model, which is MODEL's: --untie-embeddings-and-output-weights, --vocab-size
  - 163B tokens, 20 per parameter (--tokens)
  - the step's time is predicted from kernels and links as timed on its GPU (--mfu)
  - products reach 0.75 of their rate by themselves, as in measured steps on several GPUs; on one 0.98
  - the slowest of 8 GPUs, for which all wait, takes 2.1 % longer than the middle one, as GPUs of one model differ
  - no time lost to failures (--availability)
  - price 2.95 USD per GPU-hour (aimultiple.com/gpu-index median of 37 providers; nebius 2.95; AWS p5 ~3.90, 2026-05; --price)
