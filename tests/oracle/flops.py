"""Writes tests/golden/flops.jsonl: what PyTorch's FlopCounterMode counts of one forward pass of each small family.

usage: flops.py FILE

Eager attention, fp32, on the CPU, one sequence: every product is counted whole, as the convention "full" does. Llama 4
stays out: its class multiplies every token with all experts, which counts as the hardware's alone.
"""
import json
import pathlib
import sys

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

import families

SEQ = 40
DECODERS = """llama qwen2 qwen3 gemma gemma2 phi3 gpt2 gpt_neo gptj gpt_neox opt bloom falcon mpt starcoder2 gpt_bigcode
stablelm olmo olmo2 cohere mixtral phi glm4 qwen2_moe qwen3_moe olmoe granitemoe gpt_oss glm4_moe deepseek_v2 deepseek_v3
deepseek_v32 smollm3 granite glm seed_oss nemotron exaone4 ernie4_5 ernie4_5_moe dots1 hunyuan_v1_dense
minicpm3""".split()


def grouped(x, weight, *_, **__):
    return 2 * x[0] * x[1] * weight[-1]


def count(settings):
    config = transformers.AutoConfig.for_model(**settings)
    config._attn_implementation = "eager"
    model = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).float()
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten._grouped_mm: grouped}) as counter:
        model(input_ids=torch.zeros(1, SEQ, dtype=torch.long))
    return counter.get_total_flops()


if __name__ == "__main__":
    lines = []
    for name in DECODERS:
        settings = families.FAMILIES[name][0](families.SHAPES["small"])
        lines.append(json.dumps(dict(forward=count(settings), seq_len=SEQ, config=settings)))
    pathlib.Path(sys.argv[1]).write_text("\n".join(lines) + "\n")
