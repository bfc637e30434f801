== args
llama-7b --gpus 8 --tp 3 --framework torchtitan --pp 3
== tty
stderr 44
== env
NO_COLOR=1
== stderr
memplan: --gpus: tp 3 x pp 3 x cp 1 needs 9
    GPUs, and there are 8
  hint: use --gpus 9 or a multiple, or less
        of tp, pp and cp
memplan: --tp: 32 attention heads do not
    split over tp 3
  hint: use 1 or 2
== exit
3
