What of Megatron's offloading is a key, what is not modelled, what has no effect.
== args
llama-7b --gpus 8 --megatron-args run.sh --json
== file run.sh
torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --bf16 --micro-batch-size 1 \
   --use-distributed-optimizer --optimizer-cpu-offload --optimizer-offload-fraction 0.4 \
   --overlap-cpu-optimizer-d2h-h2d --use-torch-optimizer-for-cpu-offload \
   --cpu-offloading-num-layers 8 --cpu-offloading-weights --hidden-dropout 0 --attention-dropout 0 \
   --overlap-dispatch-backward-with-experts-wgrad
== stdout ~
"offload_optimizer": "cpu"
"offload_ratio": 0.4
"offload_activations": "cpu"
"cpu_offloading_num_layers": 8
--overlap-dispatch-backward-with-experts-wgrad is not modelled: weights' gradients come with the inputs'
no effect on memory or compute: --overlap-cpu-optimizer-d2h-h2d, --use-torch-optimizer-for-cpu-offload, --cpu-offloading-weights
