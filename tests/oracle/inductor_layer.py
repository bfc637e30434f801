"""What Inductor makes of torchtitan's Llama layer: every allocation of the compiled forward and backward, in order.

The layer is torchtitan's own of December 2024, with its plan of tensor parallelism, torchao's 8-bit linears and its checkpoint,
traced on a CPU without being run (graphs hand out empty tensors).  The graphs that AOTAutograd makes of it are then lowered for
an H100 by PyTorch's Inductor, kernels left out, and the wrapper that it writes runs line by line on fake tensors, whose storages
are counted.  No GPU is needed; what kernels outside of Inductor have for a moment (FlashAttention's backward, partial results of
a product with its scatter) is not seen.

  TITAN: a checkout of torchtitan 9dec370ad2; torch==2.6.0 triton==3.2.0, --no-deps torchao==0.7.0
  PYTHONPATH=TITAN python inductor_layer.py MODEL [--batch 1] [--seq 32768] [--tp 1] [--async-tp] [--bf16] [--ac full|op] [--list]

MODEL: 8B, 70B, 405B.  Prints what stays between the two graphs, and what is alive at the peak of each beside its inputs; --list
every birth and death of 1 MiB and more.
"""
import argparse
import collections
import copy
import sys
import tempfile
import types

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

DEVICE = torch.device("cuda", 0)
H100 = types.SimpleNamespace(name="NVIDIA H100", major=9, minor=0, total_memory=95 << 30, multi_processor_count=132,
                             regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, warp_size=32,
                             shared_memory_per_block_optin=232448, L2_cache_size=50 << 20, gcnArchName="")
MIB, GIB = 1 << 20, 1 << 30


def options():
    p = argparse.ArgumentParser()
    p.add_argument("model", choices=("8B", "70B", "405B"))
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--seq", type=int, default=32768)
    p.add_argument("--tp", type=int, default=1)
    p.add_argument("--async-tp", action="store_true")
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--ac", choices=("full", "op"), default="full")
    p.add_argument("--list", action="store_true")
    return p.parse_args()


def titan_model():
    """torchtitan's model with the CUDA kernel of attention, and without its Triton norm, which wants a driver."""
    import importlib.util

    root = importlib.util.find_spec("torchtitan").submodule_search_locations[0]
    norms = types.ModuleType("titan_norms")
    source = open(f"{root}/models/norms.py").read().split("@triton.autotune")[0]
    for line in ("import triton.language as tl", "import triton", "from torchtitan.utils import device_module"):
        source = source.replace(line + "\n", "\n", 1)
    llama = types.ModuleType("titan_llama")
    model = open(f"{root}/models/llama/model.py").read().replace("from torchtitan.models.norms import build_norm", "")
    here = "F.scaled_dot_product_attention(xq, xk, xv, is_causal=True)"
    assert here in model
    model = model.replace(here, "torch.ops.aten._scaled_dot_product_flash_attention(xq, xk, xv, 0.0, True)[0]")
    for module, text in ((norms, source), (llama, model)):
        sys.modules[module.__name__] = module
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as f:  # dynamo reads sources
            f.write(text)
        if module is llama:
            llama.build_norm = norms.build_norm
        exec(compile(text, f.name, "exec"), module.__dict__)
    return llama


SHAPES = {"8B": dict(dim=4096, n_heads=32, n_kv_heads=8, ffn_dim_multiplier=1.3, multiple_of=1024),
          "70B": dict(dim=8192, n_heads=64, n_kv_heads=8, ffn_dim_multiplier=1.3, multiple_of=4096),
          "405B": dict(dim=16384, n_heads=128, n_kv_heads=8, ffn_dim_multiplier=1.2, multiple_of=4096)}


def policy(o=torch.ops.aten):
    """parallelize_llama.py, _save_list and _get_custom_policy."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    save = {o.mm.default, o._scaled_dot_product_efficient_attention.default, o._scaled_dot_product_flash_attention.default,
            torch.ops._c10d_functional.reduce_scatter_tensor.default, o.abs.default, o.max.default}
    count = collections.Counter()

    def choose(ctx, func, *_, **__):
        if func == o.mm.default:
            count[ctx.is_recompute] += 1
        kept = func in save and not (func == o.mm.default and count[ctx.is_recompute] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(choose)


def build(a, llama):
    args = llama.ModelArgs(**SHAPES[a.model], n_layers=1, vocab_size=1024, norm_type="rmsnorm")
    with torch.device("meta"):
        layer = llama.TransformerBlock(0, args)
    if not a.bf16:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        convert_to_float8_training(layer, config=Float8LinearConfig(emulate=False))
    layer = layer.to(torch.bfloat16)
    if a.tp > 1:
        from torch.distributed._tensor import Replicate, Shard
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                                       parallelize_module)

        col, row, take = ColwiseParallel, RowwiseParallel, PrepareModuleInput
        if not a.bf16:
            from torchao.float8.float8_tensor_parallel import Float8ColwiseParallel as col
            from torchao.float8.float8_tensor_parallel import Float8RowwiseParallel as row
            from torchao.float8.float8_tensor_parallel import PrepareFloat8ModuleInput as take
        parallelize_module(layer, init_device_mesh("cpu", (a.tp,), mesh_dim_names=("tp",)), {
            "attention_norm": SequenceParallel(), "ffn_norm": SequenceParallel(),
            "attention": take(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
            "attention.wq": col(), "attention.wk": col(), "attention.wv": col(),
            "attention.wo": row(output_layouts=Shard(1)),
            "feed_forward": take(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "feed_forward.w1": col(), "feed_forward.w2": row(output_layouts=Shard(1)), "feed_forward.w3": col()})
    layer.to_empty(device="cpu")
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    more = {"context_fn": policy} if a.ac == "op" else {}
    return checkpoint_wrapper(layer, preserve_rng_state=False, **more), args


def trace(a, layer, args):
    """The forward and the backward graph, and what the one hands to the other."""
    from torch._inductor.compile_fx import compile_fx

    graphs = {}

    def empty_results(gm, inputs):
        names = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
        given = dict(zip(names, inputs))
        for v in next(n for n in gm.graph.nodes if n.op == "output").args[0]:
            if not isinstance(v, torch.fx.Node):
                yield v
            elif v.op == "placeholder":
                yield given[v.name]
            else:  # an RNG state has no value
                t = v.meta.get("val", torch.empty(1))
                yield torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)

    def inner(gm, example, **kw):
        way = "backward" if kw.get("is_backward") else "forward"
        graphs[way] = (copy.deepcopy(gm), example, kw)

        def run(inputs):
            return tuple(empty_results(gm, inputs))

        run._boxed_call = True
        return run

    compiled = torch.compile(layer, fullgraph=True, backend=lambda gm, ex: compile_fx(gm, ex, inner_compile=inner))
    x = torch.empty(a.batch, a.seq // a.tp, args.dim, dtype=torch.bfloat16, requires_grad=True)
    table = torch.empty(a.seq, args.dim // args.n_heads // 2, dtype=torch.complex64)
    y = compiled(x, table)
    y.backward(torch.empty_like(y))
    return graphs


def for_cuda(gm):
    """The same graph of CUDA tensors; random states, which no kernel here reads, left out."""
    graph = gm.graph
    for n in [n for n in graph.nodes if n.op == "call_function"]:
        def move(x):
            return DEVICE if isinstance(x, torch.device) and x.type == "cpu" else x

        n.args, n.kwargs = torch.fx.node.map_aggregate(n.args, move), torch.fx.node.map_aggregate(n.kwargs, move)
        saves, has = "run_and_save_rng" in str(n.target), "run_with_rng" in str(n.target)
        if not saves and not has:
            continue
        rest = n.args[1:] if has else n.args
        with graph.inserting_before(n):
            plain = graph.call_function(rest[0], rest[1:], dict(n.kwargs))
        plain.meta = dict(n.meta)
        if has:
            n.replace_all_uses_with(plain)
        for use in list(n.users):  # (state, results)
            if use.args[1] == 1:
                use.replace_all_uses_with(plain)
            for o in list(use.users):
                o.args = (type(o.args[0])(v for v in o.args[0] if v is not use),)
            graph.erase_node(use)
        graph.erase_node(n)
    gm.recompile()
    return gm


class Written(Exception):
    pass


def pretend():
    """Inductor asks for a card, a driver and Triton."""
    import torch._inductor.compile_fx as compile_fx
    import torch._inductor.graph as graph
    import torch._inductor.inductor_prims as prims
    import torch._inductor.scheduler as scheduler
    import torch.distributed._symmetric_memory as symmetric
    from contextlib import nullcontext
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor.runtime.hints import DeviceProperties
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    torch.cuda.get_device_properties = lambda *_: H100
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.current_device = lambda: 0
    torch._C._cuda_getCurrentRawStream = lambda *_: 0
    scheduler.has_triton = compile_fx.has_triton = lambda: True
    compile_fx._check_triton_bf16_support = lambda _: None
    compile_fx.get_cuda_device_context = lambda _: nullcontext()
    compile_fx.dynamo_utils.preserve_rng_state = nullcontext
    CudaInterface.get_device_properties = staticmethod(lambda *_: H100)
    CudaInterface.Worker.get_device_properties = staticmethod(lambda *_: H100)
    CudaInterface.get_compute_capability = staticmethod(lambda *_: 90)
    DeviceProperties.create = classmethod(lambda cls, _: DeviceProperties("cuda", 0, 132, 90, 9, 65536, 2048, 32))
    driver.set_active(types.SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32),
                                            get_device_interface=lambda: torch.cuda, get_current_device=lambda: 0))

    def write(self):
        raise Written(self.codegen())

    graph.GraphLowering.compile_to_module = write
    # two that would launch a kernel, of which only shape and strides matter here
    def strided(x, stride):
        return torch.empty_strided(x.shape, stride, dtype=x.dtype, device=x.device)

    for cell in prims.force_stride_order.prim_meta_impl.__closure__:
        if cell.cell_contents is prims.eager_force_stride:
            cell.cell_contents = strided
    symmetric.is_symm_mem_enabled_for_group = lambda _: True
    symmetric.make_contiguous_for_perm = lambda t, perm: torch.empty(
        [t.shape[p] for p in perm], dtype=t.dtype, device=t.device).permute([perm.index(i) for i in range(len(perm))])


def lower(gm, example, kw, fake):
    """Inductor's wrapper code, and fake inputs for it."""
    import torch._inductor.compile_fx as compile_fx
    from torch._inductor.debug import DebugContext
    from torch._inductor.virtualized import V

    with fake:
        inputs = [torch.empty_strided(tuple(map(int, e.shape)), tuple(map(int, e.stride())), dtype=e.dtype, device=DEVICE)
                  if isinstance(e, torch.Tensor) else e for e in example]
    kw = {"is_backward": False, "cpp_wrapper": False, "aot_mode": False} | kw | {"cudagraphs": compile_fx.BoxedBool(False)}
    try:
        with fake, torch.no_grad(), V.set_debug_handler(DebugContext()):
            compile_fx._InProcessFxCompile().codegen_and_compile(for_cuda(gm), inputs, [], kw)
    except Written as done:
        code = done.args[0][0]
    return (code if isinstance(code, str) else code[0]), inputs


class Nothing:
    """A kernel, and whatever compiles or calls one."""
    def __getattr__(self, _):
        return lambda *a, **k: Nothing()


def follow(code, inputs, fake):
    """Births and deaths of storages: (line, born, bytes, name, dtype, shape)."""
    for old, new in (("async_compile = AsyncCompile()", "async_compile = Nothing()"),
                     ("from torch._inductor.select_algorithm import extern_kernels", "extern_kernels = Nothing()"),
                     ("with torch.cuda._DeviceGuard(0):", "if 1:"), ("torch.cuda.set_device(0)", "pass"),
                     ("= torch._C._dynamo.guards._empty_strided_cuda",
                      "= lambda size, stride, t: torch.empty_strided(size, stride, dtype=t, device='cuda:0')"),
                     ("= torch._C._dynamo.guards._reinterpret_tensor",
                      "= lambda t, size, stride, at=0: torch.as_strided(t, size, stride, t.storage_offset() + at)"),
                     ("= torch._C._dynamo.guards.assert_size_stride", "= lambda *_: None")):
        code = code.replace(old, new)
    scope = {"Nothing": Nothing, "__name__": "wrapper"}
    exec(compile(code, "wrapper", "exec"), scope)
    given = {t.untyped_storage()._cdata for t in inputs if isinstance(t, torch.Tensor)}
    events, alive = [], {}

    def note(frame):
        now = {}
        for name, v in list(frame.f_locals.items()):
            for t in v if isinstance(v, (tuple, list)) else [v]:
                if isinstance(t, torch.Tensor) and t.untyped_storage()._cdata not in given:
                    now.setdefault(t.untyped_storage()._cdata,
                                   (t.untyped_storage().nbytes(), name, str(t.dtype)[6:], tuple(t.shape)))
        events.extend((frame.f_lineno, True, *now[c]) for c in now if c not in alive)
        events.extend((frame.f_lineno, False, *alive[c]) for c in alive if c not in now)
        alive.clear()
        alive.update(now)
        return alive

    top = [0, {}]

    def line(frame, _event, _arg):
        held = note(frame)
        total = sum(v[0] for v in held.values())
        if total > top[0]:
            top[:] = total, dict(held)
        return line

    with fake, torch.no_grad():
        sys.settrace(lambda frame, *_: line if frame.f_code.co_name == "call" else None)
        try:
            scope["call"](list(inputs))
        finally:
            sys.settrace(None)
    return events, top


def main():
    from torch._subclasses.fake_tensor import FakeTensorMode

    a = options()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=a.tp)
    import torch._inductor.config as config

    config.fx_graph_cache = False
    config._micro_pipeline_tp = False
    graphs = trace(a, *build(a, titan_model()))
    handed = next(n for n in graphs["forward"][0].graph.nodes if n.op == "output").args[0]
    for v in handed:
        t = v.meta.get("val") if isinstance(v, torch.fx.Node) else None
        if isinstance(t, torch.Tensor) and t.numel() * t.element_size() >= MIB:
            print(f"handed on: {v.name} {tuple(t.shape)} {t.dtype}{' (comes in)' if v.op == 'placeholder' else ''}")
    pretend()
    config._micro_pipeline_tp = a.async_tp
    dist.is_nccl_available = lambda: True
    for way in ("forward", "backward"):
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        events, (most, held) = follow(*lower(*graphs[way], fake), fake)
        print(f"{way}: {most / GIB:.3f} GiB beside inputs")
        for size, name, dtype, shape in sorted(held.values(), reverse=True):
            if size >= most / 100:
                print(f"  {size / MIB:8.1f} MiB {name} {dtype} {shape}")
        for at, born, size, name, dtype, shape in events if a.list else ():
            if size >= MIB:
                print(f"    {at:5} {'+' if born else '-'} {size / MIB:8.1f} MiB {name} {dtype} {shape}")


if __name__ == "__main__":
    main()
