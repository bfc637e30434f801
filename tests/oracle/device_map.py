"""What autograd keeps on each device of a model that accelerate spread.

Writes one JSON file a configuration. The machine needs no GPU: the stage to be
measured lies on the CPU, the others on the meta device, and hooks are those
that accelerate.dispatch_model attaches. A tensor that comes back from the meta
device is zeros. Rotary tables are made on the last device, as
infer_auto_device_map places them; the head of tied weights on the first.

    python tests/oracle/device_map.py tests/golden/device_map
"""
import json
import os
import sys

import accelerate
import accelerate.hooks as hooks
import accelerate.utils.operations as operations
import torch
import transformers
import transformers.masking_utils as masking
from transformers import LlamaConfig, LlamaForCausalLM

GRANULE = 512
CONFIG = dict(model_type="llama", hidden_size=64, num_attention_heads=4,
              num_key_value_heads=2, intermediate_size=160, vocab_size=256,
              max_position_embeddings=64)


class Move(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.device = x.device
        return torch.zeros(x.shape, dtype=x.dtype, device=device)

    @staticmethod
    def backward(ctx, g):
        return torch.zeros(g.shape, dtype=g.dtype, device=ctx.device), None


def send(x, device, non_blocking=False, skip_keys=None):
    if isinstance(x, torch.Tensor):
        if x.device == torch.device(device):
            return x
        return Move.apply(x, device)
    if isinstance(x, (tuple, list)):
        return operations.honor_type(x, (send(y, device) for y in x))
    if isinstance(x, dict):
        skip = skip_keys or []
        return type(x)({k: v if k in skip else send(v, device)
                        for k, v in x.items()})
    return x


to = torch.Tensor.to


def to_device(x, *args, **kwargs):
    """Labels, which no gradient comes to."""
    if x.device.type == "meta" and args and args[0] == torch.device("cpu"):
        return torch.zeros(x.shape, dtype=x.dtype)
    return to(x, *args, **kwargs)


torch.Tensor.to = to_device


def place(module, name, device, value=None, **_):
    *path, name = name.split(".")
    for part in path:
        module = getattr(module, part)
    for table in (module._parameters, module._buffers):
        old = table.get(name)
        if old is None or old.device == torch.device(device):
            continue
        new = old.detach().to(device)
        if table is module._parameters:
            new = torch.nn.Parameter(new, old.requires_grad)
        table[name] = new


hooks.send_to_device = send
masking.find_packed_sequence_indices = lambda positions: None  # asks values
hooks.set_module_tensor_to_device = place


def device_map(stages, measured, tied):
    """Device of each module when only stage `measured` is on the CPU."""
    def of(stage):
        return "cpu" if stage == measured else "meta"
    last = len(stages) - 1
    where = {"model.embed_tokens": of(0), "model.norm": of(last),
             "model.rotary_emb": of(last), "lm_head": of(0 if tied else last),
             "": of(0)}
    layer = 0
    for i, n in enumerate(stages):
        for _ in range(n):
            where[f"model.layers.{layer}"] = of(i)
            layer += 1
    return where


def kept(stages, measured, tied, dtype, recompute, b, s):
    config = LlamaConfig(num_hidden_layers=sum(stages), attention_dropout=0.0,
                         tie_word_embeddings=tied, use_cache=False,
                         attn_implementation="eager",
                         **{k: v for k, v in CONFIG.items()
                            if k != "model_type"})
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    model.to(torch.bfloat16 if dtype == "bf16" else torch.float32)
    where = device_map(stages, measured, tied)
    hooks.attach_align_device_hook_on_blocks(
        model, execution_device=where,
        offload={k: False for k in where if k},
        skip_keys=model._skip_keys_device_placement)
    if tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    if recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    ids = torch.zeros(b, s, dtype=torch.long, device=where[""])
    params = {p.untyped_storage()._cdata for p in model.parameters()}
    seen = {}

    def pack(t):
        if t.device.type == "cpu":
            seen[t.untyped_storage()._cdata] = t
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        model(input_ids=ids, labels=ids)
    rows = []
    for key, t in seen.items():
        if key in params or key == ids.untyped_storage()._cdata:
            continue
        size = t.untyped_storage().nbytes()
        rows.append([-(-size // GRANULE) * GRANULE, str(t.dtype)[6:],
                     list(t.shape)])
    return sorted(rows, key=str)


def main(folder):
    os.makedirs(folder, exist_ok=True)
    b, s = 2, 32
    for tied in (False, True):
        for dtype in ("fp32", "bf16"):
            for recompute in (False, True):
                for stages in ([2, 2], [3, 1], [2, 1, 2]):
                    name = "-".join(
                        ["tied" if tied else "untied", dtype,
                         "full" if recompute else "none",
                         "_".join(map(str, stages))])
                    lists = [kept(stages, i, tied, dtype, recompute, b, s)
                             for i in range(len(stages))]
                    out = {
                        "torch": torch.__version__,
                        "transformers": transformers.__version__,
                        "accelerate": accelerate.__version__,
                        "command": "python tests/oracle/device_map.py "
                                   "tests/golden/device_map",
                        "config": dict(CONFIG,
                                       num_hidden_layers=sum(stages),
                                       tie_word_embeddings=tied),
                        "dtype": dtype, "recompute": recompute,
                        "b": b, "s": s, "layers": stages,
                        "kept_bytes": [sum(r[0] for r in rows)
                                       for rows in lists],
                        "kept": lists,
                    }
                    with open(os.path.join(folder, name + ".json"), "w") as f:
                        f.write("{\n" + ",\n".join(
                            f" {json.dumps(k)}: {json.dumps(v)}"
                            for k, v in out.items()) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
