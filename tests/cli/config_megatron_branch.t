What a branch says is read, and told: which one runs is the shell's to say. The
arms of a case are branches too.
== args
llama-7b --megatron-args run.sh
== file run.sh
case $SIZE in
  small) TP_ARGS="--tensor-model-parallel-size 2" ;;
  large) TP_ARGS="--tensor-model-parallel-size 4" ;;
  -h|--help) echo "--sequence-parallel"; exit ;;
esac
if [ "$MODE" = long ]; then
  SEQ=4096
else
  SEQ=2048
fi
if [ -n "$RECOMPUTE" ]; then
  EXTRA="--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"; fi
torchrun --nproc_per_node 8 pretrain_gpt.py $TP_ARGS $EXTRA --seq-length $SEQ --micro-batch-size 1 --bf16
== stdout ~
tp 4
sequences of 2,048 tokens
- run.sh: in an if or a case of the script, read as if it were taken: --tensor-model-parallel-size, --recompute-granularity, --recompute-method, --recompute-num-layers
--seq-length
