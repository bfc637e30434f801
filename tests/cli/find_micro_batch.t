== args
llama-7b --gpus 8 --zero 3 --gpu h100-80gb --find micro_batch
== stdout ~
llama-7b on 8 x h100-80gb: the largest micro_batch that fits is
fits
too much
peak in
grad_accum is held, and global_batch is micro_batch x grad_accum x dp
