"""When groups of Megatron-core's fine-grained activation offloading go and come back.

Its own manager (core/pipeline_parallel/fine_grained_activation_offload.py) runs around layers that have nothing but modules: each
keeps a tensor on the CPU, streams and events are stubs.  Two steps of a rank: the first warms up, the second is written down, of
each chunk the second micro-batch, if there is one: what goes, [layer, module], and what the end of each module's backward brings
back, [of a later backward, layer, module] or null, one after another; and whether others are in flight.  Orders of forwards and
backwards of chunks are Megatron's (schedules.py, cuda_graphs.py).

usage: PYTHONPATH=MEGATRON_LM megatron_offload.py FILE      MEGATRON_LM: a checkout of d98e8a64; VENV: torch 2.13.0 (CPU)
"""
import contextlib
import json
import sys
import types

import torch


class Stub:
    """A stream, or an event, that is always ready."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, _):
        return lambda *_, **__: None


torch.cuda.Stream = torch.cuda.Event = Stub
torch.cuda.current_stream = Stub
torch.cuda.stream = lambda _: contextlib.nullcontext()
torch.Tensor.record_stream = lambda *_: None
engine = types.ModuleType("megatron.core.extensions.transformer_engine")
engine.cpu_offload = types.SimpleNamespace(CPUOffloadEnabled=False)

sys.modules["megatron.core.transformer.moe.paged_stash"] = stash = types.ModuleType("paged_stash")  # wants Triton
stash.__getattr__ = lambda _: None

from megatron.core.pipeline_parallel import fine_grained_activation_offload as offload  # noqa: E402
from megatron.core.pipeline_parallel import schedules  # noqa: E402
from megatron.core.transformer import cuda_graphs  # noqa: E402

sys.modules["megatron.core.extensions.transformer_engine"] = engine
Manager, Chunk, Module = offload.PipelineOffloadManager, offload.ChunkOffloadHandler, offload.FineGrainedActivationOffloadingInterface
Chunk._can_manage_tensor_for_offload = staticmethod(lambda tensor: not isinstance(tensor, torch.nn.Parameter))
offload.print_offload_summary_table = lambda *_, **__: None
empty = torch.empty
torch.empty = lambda *sizes, pin_memory=False, **how: empty(*sizes, **how)
offload.is_graph_capturing = lambda: False
ALL = ["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"]
log = []
names = {}  # of a manager's chunks: where they are


def place(chunk, group):
    """Layer and module of a group, by its number in the chunk."""
    c, micro, layers = names[id(chunk)]
    n = chunk.offload_groups.index(group)
    for layer, modules in enumerate(layers):
        if n < len(modules):
            assert modules[n] == group._name
            return [c, micro, layer, group._name]
        n -= len(modules)
    raise AssertionError


def followed(method, what):
    real = getattr(Chunk, method)

    def wrapper(self, *args):
        group = args[0] if what == "goes" else self._groups_to_reload[-1]
        log.append([what, *place(self, group)])
        return real(self, *args)

    setattr(Chunk, method, wrapper)


followed("bulk_offload_group", "goes")
followed("bulk_reload_group", "back")
start_backward = Chunk.on_group_start_backward


def module_ends(self):
    log.append(["ends"])
    return start_backward(self)


Chunk.on_group_start_backward = module_ends


def run_module(on, x, name, body):
    """As in transformer_layer.py: `body` is inside, the commit is the caller's."""
    module = Module(on, x, name)
    with module as x:
        y = body(x)
    return module, y


def keep(x):
    return torch.sin(x)


def layer(x, modules):
    on = lambda name: name in modules  # noqa: E731
    norm, y = run_module(on("attn_norm"), x, "attn_norm", keep)
    for name in ALL[1:4]:
        module, y = run_module(on(name), y, name, keep)
        y = module.group_offload(y)
    x = norm.group_offload(x + y)
    if not set(ALL[4:]) & set(modules):
        return keep(x)
    norm, y = run_module(on("mlp_norm"), x, "mlp_norm", keep)
    module, y = run_module(on("expert_fc1"), y, "expert_fc1", keep)
    y = module.group_offload(y)
    module, y = run_module(on("moe_act"), y, "moe_act", keep)
    y = module.group_offload(keep(y))
    return norm.group_offload(x + y)


def order_of(run):
    """[chunk, forward] of a rank, one after another."""
    pp, vpp, rank, micros = run["pp"], run["vpp"], run["rank"], run["micros"]
    if vpp == 1:
        warm = min(pp - rank - 1, micros)
        order = [1] * warm + [1, -1] * (micros - warm) + [-1] * warm
    else:
        table = schedules.get_schedule_table(micros, vpp, pp)
        warm = min((pp - rank - 1) * 2 + (vpp - 1) * pp, micros * vpp)
        order = cuda_graphs.convert_schedule_table_to_order(warm, vpp, table)
    return [(abs(c) - 1, c > 0) if c > 0 else (abs(c) - 1, False) for c in order]


def step(run, warm):
    live, done = {}, {}
    for chunk, forward in order_of(run):
        layers = run["chunks"][chunk]
        if forward:
            micro = live.setdefault(chunk, [])
            number = done.setdefault(("f", chunk), 0)
            done["f", chunk] += 1
            log.append(["forward", chunk, number])
            Module.init_chunk_handler(run["rank"], run["vpp"], chunk, 0, 0, 1.0)
            if warm:
                names[id(Manager.get_instance()._cur_forward_chunk)] = (chunk, number, layers)
            x = torch.ones(4, requires_grad=True)
            y = x
            for modules in layers:
                y = layer(y, modules)
            micro.append(y.sum())
        else:
            number = done.setdefault(("b", chunk), 0)
            done["b", chunk] += 1
            log.append(["backward", chunk, number])
            live[chunk].pop(0).backward()


def record(run):
    Manager.reset_instance()
    manager = Manager.get_instance()
    manager._cpu_tensor_pool = offload.OffloadTensorPool(device="cpu", pin_memory=False)
    names.clear()
    step(run, True)
    manager.reset()
    log.clear()
    step(run, False)
    micro = min(1, run["micros"] - 1)
    here = [{"goes": [], "back": []} for _ in run["chunks"]]
    at, flying = None, 0
    for what, *where in log:
        chunk = where[0] if where else None
        if what == "forward":
            flying += 1
        elif what == "backward":
            flying -= 1
            at = here[chunk] if where[1] == micro else None
            if at is not None:
                at["others"] = flying > 0
        elif what == "goes" and where[1] == micro:
            here[chunk]["goes"].append(where[2:])
        elif what == "ends" and at is not None:
            at["back"].append(None)
        elif what == "back" and at is not None:
            at["back"][-1] = [at is not here[chunk] or where[1] != micro, *where[2:]]
    return {**run, "micro": micro, "chunks": [{"layers": layers, **of} for layers, of in zip(run["chunks"], here)]}


def runs():
    latent = {"alike": [ALL] * 3, "first dense": [ALL[:4]] * 2 + [ALL] * 3}
    plain, experts = ALL[1:4], ALL[1:]
    some = ["core_attn", "attn_proj", "expert_fc1", "moe_act"]
    stacks = {
        **latent,
        "in turns": [experts, plain, experts, plain],
        "top plain": [experts] * 2 + [plain],
        "some": [some[:2]] + [some] * 2,
        "one": [["core_attn"]] * 4,
    }
    for name, layers in stacks.items():
        for pp, rank, micros in [(1, 0, 1), (1, 0, 3), (2, 0, 1), (2, 0, 4), (2, 1, 4), (4, 1, 8)]:
            if name != "first dense" or pp == 1:
                yield {"name": name, "pp": pp, "vpp": 1, "rank": rank, "micros": micros, "chunks": [layers]}
    for name in ["alike", "one", "top plain"]:
        for rank in [0, 1, 3]:  # its second micro-batch is not the last of a round of chunks
            yield {"name": name, "pp": 4, "vpp": 2, "rank": rank, "micros": 8, "chunks": [stacks[name]] * 2}


if __name__ == "__main__":
    out = [record(run) for run in runs()]
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("[" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in out) + "]\n")
