Megatron Core's flags say what NeMo runs.
== args
llama-7b --gpus 8 --framework nemo --tp 2 --emit megatron
== stdout ~
    --tensor-model-parallel-size 2 \
    --pipeline-model-parallel-size 1 \
== stderr
memplan: note: not in it: --framework; it is the program that is started
