"""Linears and layers in fp8 by torchao, and what else a step of training waits for, on a real GPU.

Compiled Llama layers and linears in bf16 and in torchao's recipes (one process a recipe: all compile at once, then each
measures alone), their matrix products alone, attention of few heads, what freeing and taking memory costs the caching
allocator, bitsandbytes' NF4, the host.  Every part writes its file as it goes; a measure that fails is printed and
left out.

usage: gpu_float8.py OUTDIR [--seconds N] [--parts LETTERS]    files: casts.csv layers.csv linears.csv kernels.json
                                                               gemm.csv attention.csv allocator.csv nf4.csv host.csv
       gpu_float8.py OUTDIR --device cpu --tiny                exercises the code; its figures mean nothing

casts.csv, of the profiler: by recipe and pass, seconds of a layer's products, its attention and all else.  Times are
seconds; `isolated` and `sustained` as gpu_time.py has them.
"""
import ctypes
import functools
import json
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import gpu_time
from gpu_time import Place, Table, clear, failed

RECIPES = ("bf16", "tensorwise", "rowwise", "rowwise_with_gw_hp")
TOKENS = 8192
LINEARS = [  # out, in: of Llama 3 8B and 70B, whole and eighths of tensor parallelism, in order of worth
    (14336, 4096), (4096, 14336), (4096, 4096), (28672, 8192), (8192, 28672), (3584, 8192), (8192, 3584),
    (1024, 4096), (1024, 8192), (8192, 1024), (1792, 4096), (4096, 1792), (8192, 8192)]
LAYERS = {"llama-3-8b": (4096, 32, 8, 14336, 3), "llama-3-70b": (8192, 64, 8, 28672, 1)}
TINY_LAYERS = {"llama-3-8b": (64, 4, 2, 128, 2)}


# ---- the layer, as torchtitan writes it ----


def turned(x, freqs):
    y = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(y * freqs[None, :, None, :]).flatten(3).type_as(x)


class Layer(nn.Module):
    def __init__(self, hidden, heads, kv_heads, inner):
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, hidden // heads
        make = functools.partial(nn.Linear, bias=False)
        self.wq, self.wo = make(hidden, hidden), make(hidden, hidden)
        self.wk, self.wv = make(hidden, kv_heads * self.width), make(hidden, kv_heads * self.width)
        self.w1, self.w3, self.w2 = make(hidden, inner), make(hidden, inner), make(inner, hidden)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)

    def attention(self, x, freqs):
        b, s, _ = x.shape
        q = turned(self.wq(x).view(b, s, -1, self.width), freqs)
        k = turned(self.wk(x).view(b, s, -1, self.width), freqs)
        v = self.wv(x).view(b, s, -1, self.width)
        times = self.heads // self.kv_heads
        k, v = (t[:, :, :, None, :].expand(b, s, self.kv_heads, times, self.width).reshape(b, s, -1, self.width)
                for t in (k, v))
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        return self.wo(y.transpose(1, 2).contiguous().view(b, s, -1))

    def forward(self, x, freqs):
        x = x + self.attention(self.attention_norm(x), freqs)
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


def convert(net, recipe, place):
    if recipe == "bf16":
        return net
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    config = Float8LinearConfig.from_recipe_name(recipe)
    if not place.cuda:
        import dataclasses
        config = dataclasses.replace(config, emulate=True)
    return convert_to_float8_training(net, config=config)


def compiled(net, place):
    return torch.compile(net, fullgraph=True, dynamic=False, backend="inductor" if place.cuda else "aot_eager")


# ---- a worker: one recipe ----


def linear_case(place, recipe, out, inside):
    tokens = 64 if place.tiny else TOKENS
    with torch.device(place.where):
        net = nn.Sequential(nn.Linear(inside, out, bias=False, dtype=torch.bfloat16))
        x = torch.randn(tokens, inside, dtype=torch.bfloat16).requires_grad_()
        up = torch.randn(tokens, out, dtype=torch.bfloat16)
    run = compiled(convert(net, recipe, place), place)
    weights = list(net.parameters())

    def call():
        torch.autograd.grad(run(x), [x] + weights, up)
    return call


def layer_case(place, recipe, shape):
    hidden, heads, kv_heads, inner, count = shape
    tokens = 64 if place.tiny else TOKENS
    if recipe == "rowwise" and place.cuda:  # as torchtitan does
        torch._inductor.config.emulate_precision_casts = True
    with torch.device(place.where):
        nets = [Layer(hidden, heads, kv_heads, inner).to(torch.bfloat16) for _ in range(count)]
        x = torch.randn(1, tokens, hidden, dtype=torch.bfloat16).requires_grad_()
        up = torch.randn(1, tokens, hidden, dtype=torch.bfloat16)
        angles = torch.outer(torch.arange(tokens).float(), 5e5 ** -torch.linspace(0, 1, hidden // heads // 2))
        freqs = torch.polar(torch.ones_like(angles), angles)
    runs = [compiled(convert(net, recipe, place), place) for net in nets]
    weights = [p for net in nets for p in net.parameters()]

    def forward():
        y = x
        for run in runs:
            y = run(y, freqs)
        return y

    def call():
        torch.autograd.grad(forward(), [x] + weights, up)
    return call, forward, count


def kernels_of(place, call, count=3):
    """[name, microseconds of each run] in the order in which they ran."""
    if not place.cuda:
        return []
    from torch.profiler import ProfilerActivity, profile
    place.sync()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(count):
            call()
        place.sync()
    events = sorted((e.start_ns(), e.name()[:90], round(e.duration_ns() / 1000, 2))
                    for e in seen.profiler.kineto_results.events() if "CUDA" in str(e.device_type()))
    if len(events) % count:
        return [[name, us] for _, name, us in events]
    each = len(events) // count
    return [[events[i][1], *(events[i + each * j][2] for j in range(count))] for i in range(each)]


def worker(place, recipe):
    torch._dynamo.config.recompile_limit = 64
    begin, cases = time.time(), []
    todo = [("layer", name, shape) for name, shape in (TINY_LAYERS if place.tiny else LAYERS).items()][:1]
    todo += [("linear", f"{o}x{i}", (o, i)) for o, i in ([(64, 32)] if place.tiny else LINEARS)]
    todo += [("layer", name, shape) for name, shape in (TINY_LAYERS if place.tiny else LAYERS).items()][1:]
    for kind, name, shape in todo:
        if time.time() - begin > place.seconds:
            break
        try:
            case = layer_case(place, recipe, shape) if kind == "layer" else linear_case(place, recipe, *shape)
            call = case[0] if kind == "layer" else case
            call()
            call()
            place.sync()
            cases.append((kind, name, shape, case))
            print(f"{recipe} {name} compiled at {time.time() - begin:.1f} s", flush=True)
        except Exception:
            failed(f"{recipe} {name}")
    print("compiled", flush=True)
    sys.stdin.readline()
    place.clock = gpu_time.Clock(place.cuda)
    kernels = {}
    linears = open(place.out / f"linears.{recipe}.csv", "w")
    layers = open(place.out / f"layers.{recipe}.csv", "w")
    for kind, name, shape, case in cases:
        try:
            if kind == "linear":
                one = place.isolated([case], count=5)
                row = [recipe, 64 if place.tiny else TOKENS, *shape, one, *place.sustained_eager(case, one, 0.12)]
                file = linears
                call = case
            else:
                call, forward, count = case
                one = place.isolated([call], count=5)
                ahead = place.isolated([forward], count=3)
                row = [recipe, name, 64 if place.tiny else TOKENS, count, one, ahead,
                       *place.sustained_eager(call, one, 0.7)]
                file = layers
            file.write(",".join(f"{c:.5g}" if isinstance(c, float) else str(c) for c in row) + "\n")
            file.flush()
            print(recipe, name, row[-4:], flush=True)
            kernels[f"{kind} {name}"] = kernels_of(place, call)
            (place.out / f"kernels.{recipe}.json").write_text(json.dumps(kernels))
        except Exception:
            failed(f"measure {recipe} {name}")


class Short(Place):
    """A place whose sustained runs are no longer than so many seconds."""

    limit = 1.0

    def sustained(self, calls, each, seconds=0.4):
        return super().sustained(calls, each, min(seconds, self.limit))

    def sustained_eager(self, call, each, seconds):
        """Back to back without a graph: compiled backwards and profilers do not like captures."""
        if not self.cuda:
            return each, "", ""
        count, start = max(3, int(seconds / each)), time.time()
        for _ in range(max(1, count // 3)):
            call()
        a = self.event()
        for _ in range(count):
            call()
        b = self.event()
        self.sync()
        return (self.between(a, b) / count, *self.clock.since(start))


def workers(place, given):
    """All compile at once, each measures alone; a worker that dies leaves the others be."""
    made = []
    for recipe in RECIPES:
        command = [sys.executable, __file__, str(place.out), "--worker", recipe, "--device", place.where,
                   "--seconds", str(given.compile_seconds)] + (["--tiny"] if place.tiny else [])
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "4"
        made.append((recipe, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)))
    for recipe, child in made:
        for line in child.stdout:
            print(line, end="", flush=True)
            if line == "compiled\n":
                break
    for recipe, child in made:
        try:
            out, _ = child.communicate("go\n", timeout=60)
            print(out, end="", flush=True)
        except Exception:
            child.kill()
            failed("worker " + recipe)
    heads = {"linears": "recipe,tokens,out,in,isolated_s,sustained_s,mhz,watt",
             "layers": "recipe,model,tokens,layers,isolated_s,forward_s,sustained_s,mhz,watt"}
    for name, head in heads.items():
        parts = [place.out / f"{name}.{recipe}.csv" for recipe in RECIPES]
        (place.out / f"{name}.csv").write_text(head + "\n" + "".join(p.read_text() for p in parts if p.exists()))
        [p.unlink() for p in parts if p.exists()]
    parts = {recipe: place.out / f"kernels.{recipe}.json" for recipe in RECIPES}
    (place.out / "kernels.json").write_text(json.dumps(
        {recipe: json.loads(p.read_text()) for recipe, p in parts.items() if p.exists()}))
    [p.unlink() for p in parts.values() if p.exists()]


# ---- what casts take ----


def kind(name):
    if "nvjet" in name or "gemm" in name:
        return "products"
    return "attention" if "cudnn" in name or "flash" in name else "other"


def forward_kernels(names, layer):
    """How many of the kernels are forward's: up to a linear's product, or the sum that ends the last layer."""
    if not layer:
        return next(i for i, x in enumerate(names) if kind(x) == "products") + 1
    last = max(i for i, x in enumerate(names) if "fprop" in x)
    return next(i for i in range(last, len(names)) if "_add_" in names[i] and "rms" not in names[i]) + 1


def casts(place):
    table = Table(place, "casts.csv", "recipe,what,tokens,pass,kernels,products_s,attention_s,other_s")
    for recipe, cases in json.loads((place.out / "kernels.json").read_text()).items():
        for name, kernels in cases.items():
            which, what = name.split()
            if not kernels:
                continue
            count = LAYERS[what][4] if which == "layer" else 1
            cut = forward_kernels([k[0] for k in kernels], which == "layer")
            for part, some in (("forward", kernels[:cut]), ("backward", kernels[cut:])):
                sums = dict(products=0.0, attention=0.0, other=0.0)
                for k in some:
                    sums[kind(k[0])] += statistics.median(k[1:]) * 1e-6 / count
                table.row(recipe, what, TOKENS, part, round(len(some) / count), *sums.values())


# ---- products alone ----


def products(place, until):
    """As torchao calls them: fast accumulation in forward alone; scales of one tensor, or of rows and columns."""
    table = Table(place, "gemm.csv", "dtype,layout,m,n,k,isolated_s,sustained_s,mhz,watt")
    done = set()
    for out, inside in [(32, 16)] if place.tiny else LINEARS:
        for layout in ("forward", "dgrad", "wgrad"):
            m, n, k = gpu_time.shape_of((64 if place.tiny else TOKENS, out, inside), layout)
            for kind in ("bf16", "tensor", "row"):
                fast = layout == "forward"
                key = (m, n, k, kind, fast, layout if kind == "bf16" else "")
                if place.left(until) < 0 or key in done or (place.tiny and kind != "bf16"):
                    continue
                done.add(key)
                name = layout if kind == "bf16" else kind + ("-fast" if fast else "-exact")
                try:
                    calls = (gpu_time.product_calls(place, m, n, k, layout) if kind == "bf16" else
                             gpu_time.product_8_calls(place, m, n, k, kind == "row", fast))[:8]
                    one = place.isolated(calls, count=3)
                    table.row("bf16" if kind == "bf16" else "fp8", name, m, n, k, one, *place.sustained(calls, one))
                except Exception:
                    failed(f"product {name} {m} {n} {k}")
                calls = None
        clear(place)


# ---- attention of few heads ----


def attentions(place, until):
    table = Table(place, "attention.csv", "backend,batch,heads,kv_heads,length,width,causal,forward_s,backward_s,"
                                          "forward_sustained_s,backward_sustained_s,mhz,watt")
    shapes = [(1, h, g, s, 128, True) for s in (4096, 8192, 2048, 16384) for h, g in
              ((1, 1), (2, 2), (4, 4), (8, 8), (8, 1), (4, 1))]
    shapes += [(1, 32, 8, s, 128, True) for s in (4096, 8192)]
    for shape in [(2, 4, 2, 32, 16, True)] if place.tiny else shapes:
        for backend in ("math",) if place.tiny else ("flash", "cudnn"):
            if place.left(until) < 0:
                return
            try:
                table.row(backend, *shape[:5], int(shape[5]), *gpu_time.attend(place, shape, backend))
            except Exception:
                failed(f"attention {backend} {shape}")


# ---- the allocator ----


def cuda_runtime():
    """The CUDA runtime that PyTorch has loaded."""
    for line in open("/proc/self/maps"):
        if "libcudart" in line:
            return ctypes.CDLL(line.split()[-1])
    raise OSError("no libcudart loaded")


def plain(place, table, size, count):
    """cudaMalloc and cudaFree, one by one."""
    runtime, held, taken, freed = cuda_runtime(), [], [], []
    for _ in range(count):
        p, t = ctypes.c_void_p(), time.perf_counter()
        code = runtime.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(size))
        taken.append(time.perf_counter() - t)
        if code:
            raise MemoryError(f"cudaMalloc: {code}")
        held.append(p)
    for p in held:
        t = time.perf_counter()
        runtime.cudaFree(p)
        freed.append(time.perf_counter() - t)
    for name, times in (("cudaMalloc", taken), ("cudaFree", freed)):
        table.row(name, size >> 20, count, statistics.median(times), sum(times), max(times), "", "")


def retries(place, table, size, count, busy, expandable):
    """PyTorch's allocator at its limit: `count` cached segments freed, one of twice the size taken."""
    clear(place)
    torch.cuda.memory._set_allocator_settings("expandable_segments:" + str(expandable))
    total = torch.cuda.mem_get_info()[1]
    limit = (size * count + size) / total
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit))
    before, times = torch.cuda.memory_stats()["num_alloc_retries"], []
    for _ in range(3):
        held = [torch.empty(size, dtype=torch.uint8, device="cuda").fill_(1) for _ in range(count)]
        held = None
        place.sync()
        if busy:
            torch.cuda._sleep(int(busy * 1.755e9))
        t = time.perf_counter()
        held = torch.empty(2 * size, dtype=torch.uint8, device="cuda")
        a = time.perf_counter() - t
        t = time.perf_counter()
        place.sync()
        times.append((a, time.perf_counter() - t))
        held = None
        torch.cuda.empty_cache()
    seen = torch.cuda.memory_stats()["num_alloc_retries"] - before
    table.row("retry" + ("_expandable" if expandable else "") + ("_busy" if busy else ""), size >> 20, count,
              statistics.median(x[0] for x in times), seen, max(x[0] for x in times),
              statistics.median(x[1] for x in times), busy)
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.memory._set_allocator_settings("expandable_segments:False")


def allocators(place, until):
    table = Table(place, "allocator.csv", "what,mib,count,median_s,sum_s_or_retries,max_s,sync_after_s,busy_s")
    if not place.cuda:
        return
    sizes = [(2, 64), (20, 64), (64, 32), (256, 32), (1024, 16), (4096, 8), (16384, 2)]
    for mib, count in sizes:
        try:
            plain(place, table, mib << 20, count)
            plain(place, table, mib << 20, count)
        except Exception:
            failed(f"cudaMalloc {mib}")
    for mib, count in [(20, 8), (20, 64), (20, 256), (64, 32), (256, 8), (256, 32), (1024, 8), (1024, 24), (4096, 6)]:
        for busy, expandable in ((0, False), (0.02, False), (0, True)):
            if place.left(until) < 0 or (busy and mib not in (20, 1024)):
                continue
            try:
                retries(place, table, mib << 20, count, busy, expandable)
            except Exception:
                failed(f"retry {mib} {count} {busy} {expandable}")
    table.file.flush()
    clear(place)


# ---- NF4 ----


def nf4(place, until):
    table = Table(place, "nf4.csv", "what,out,in,double,isolated_s,sustained_s,mhz,watt")
    import bitsandbytes
    from bitsandbytes import functional as B
    print("bitsandbytes", bitsandbytes.__version__)
    for out, inside in [(64, 64)] if place.tiny else [(4096, 4096), (14336, 4096), (1024, 4096), (28672, 8192)]:
        for double in (False, True):
            w = torch.randn(out, inside, device=place.where, dtype=torch.bfloat16)
            packed = [B.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=double)
                      for _ in range(4)]
            calls = [lambda p=p: B.dequantize_4bit(*p) for p in packed]
            one = place.isolated(calls, count=5)
            table.row("dequantize_nf4", out, inside, int(double), one, *place.sustained_eager(calls[0], one, 0.1))


def main():
    parser = gpu_time.arguments(175, "lpacnh")
    parser.add_argument("--compile-seconds", type=float, default=40)
    parser.add_argument("--worker", default="")
    given, place = gpu_time.begin(parser, Short)
    if given.worker:
        place.clock.stop()
        try:
            worker(place, given.worker)
        finally:
            place.clock.stop()
        return
    print(gpu_time.versions_of(place), "host", os.cpu_count(), flush=True)
    try:
        import torchao
        print("torchao", torchao.__version__, flush=True)
    except Exception:
        failed("torchao")
    parts = {"c": lambda: allocators(place, 0.15), "l": lambda: (workers(place, given), casts(place)),
             "n": lambda: nf4(place, 0.9), "p": lambda: products(place, 0.84), "a": lambda: attentions(place, 0.97),
             "h": lambda: gpu_time.hosts(place)}
    for letter, part in parts.items():
        begin = time.time()
        place.limit = dict(p=0.1, a=0.06).get(letter, 1.0)
        if letter in given.parts:
            try:
                part()
            except Exception:
                failed("part " + letter)
            clear(place)
            print(f"part {letter}: {time.time() - begin:.1f} s", flush=True)
    place.clock.stop()
    print(f"{time.time() - place.begin:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
