Optimizers of Megatron-LM's that are not modelled are refused by name.
== args
llama-3-8b --gpu h100-80gb --megatron-args run.sh
== file run.sh
torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 --micro-batch-size 1 --optimizer soap
== stderr ~
--optimizer 'soap' is not modelled
known are adam, sgd, muon, dist_muon, lion
== exit
3
