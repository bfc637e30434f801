Lion, and arguments that Megatron-LM has since its core_v0.16.
== args
llama-3-8b --gpu h100-80gb --megatron-args run.sh --json
== file run.sh
torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 --micro-batch-size 1 \
   --optimizer lion --use-distributed-optimizer --lion-beta2 0.98 --context-parallel-size 4 \
   --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 \
   --fp32-residual-connection --gtp-weight-remat-size 2 --outer-dp-sharding-strategy no_shard \
   --no-pad-vocab-size --qk-l2-norm --otel-enabled --flight-recorder-dump-path d \
   --hidden-dropout 0 --attention-dropout 0
== stdout ~
"vocab_multiple": 1
"optimizer": "lion"
"optimizer_impl": "loop"
"cp_comm": "p2p"
--hierarchical-context-parallel-sizes is not modelled: keys and values go round one ring of all ranks
--fp32-residual-connection is not modelled: what layers hand on is in 16 bits
--gtp-weight-remat-size 2 is not modelled: 1 is assumed
of the model, which is MODEL's: --qk-l2-norm
no effect on memory or compute: --lion-beta2, --otel-enabled, --flight-recorder-dump-path
