What the script says of norms and positions is held against MODEL.
== args
llama-7b --gpus 8 --megatron-args run.sh
== file run.sh
torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --bf16 \
   --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
   --ffn-hidden-size 11008 --swiglu --untie-embeddings-and-output-weights \
   --vocab-size 32000 --seq-length 2048 --position-embedding-type none
== stdout ~
another model than MODEL: normalization LayerNorm, MODEL's RMSNorm; position_embedding_type none, MODEL's rope
