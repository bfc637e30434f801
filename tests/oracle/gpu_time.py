"""How long steps and their kernels take on a real GPU: scoring rows, and timings that constants are fitted to.

Whole steps of transformers' models (random weights, random tokens; CUDA events; kernels by the profiler), then matrix
products, attention, element-wise operations and the host, each alone.  Every part writes its file as it goes; a measure
that fails is printed and left out.

usage: gpu_time.py OUTDIR [--seconds N] [--parts LETTERS]     files: steps.jsonl details.json gemm.csv attention.csv
                                                              elementwise.csv host.csv
       gpu_time.py OUTDIR --device cpu --tiny                 exercises the code; its figures mean nothing

Times are seconds, medians.  `isolated`: after a pause, launched behind a kernel that sleeps, operands that are not in
the cache; `sustained`: back to back for some tenths of a second, as the card's power allows.
"""
import argparse
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time
import traceback

import torch
import torch.nn.functional as F

MODELS = {
    "gpt2": dict(model_type="gpt2", n_embd=768, n_layer=12, n_head=12, n_positions=1024, vocab_size=50257,
                 tie_word_embeddings=True, activation_function="gelu_new", resid_pdrop=0.1, embd_pdrop=0.1,
                 attn_pdrop=0.1),
    "gpt2-xl": dict(model_type="gpt2", n_embd=1600, n_layer=48, n_head=25, n_positions=1024, vocab_size=50257,
                    tie_word_embeddings=True, activation_function="gelu_new", resid_pdrop=0.1, embd_pdrop=0.1,
                    attn_pdrop=0.1),
    "pythia-410m": dict(model_type="gpt_neox", hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                        intermediate_size=4096, max_position_embeddings=2048, vocab_size=50304,
                        tie_word_embeddings=False, attention_bias=True, use_parallel_residual=True, rotary_pct=0.25,
                        hidden_act="gelu", hidden_dropout=0.0, attention_dropout=0.0),
    "opt-1.3b": dict(model_type="opt", hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, ffn_dim=8192,
                     max_position_embeddings=2048, vocab_size=50272, word_embed_proj_dim=2048,
                     do_layer_norm_before=True, tie_word_embeddings=True, activation_function="relu", dropout=0.1,
                     attention_dropout=0.0),
    "llama-3.2-1b": dict(model_type="llama", hidden_size=2048, num_hidden_layers=16, num_attention_heads=32,
                         num_key_value_heads=8, head_dim=64, intermediate_size=8192, vocab_size=128256,
                         max_position_embeddings=131072, tie_word_embeddings=True, hidden_act="silu",
                         attention_bias=False, attention_dropout=0.0, mlp_bias=False),
    "qwen2.5-1.5b": dict(model_type="qwen2", hidden_size=1536, num_hidden_layers=28, num_attention_heads=12,
                         num_key_value_heads=2, intermediate_size=8960, vocab_size=151936,
                         max_position_embeddings=131072, tie_word_embeddings=True, hidden_act="silu",
                         attention_dropout=0.0),
    "llama-3.2-3b": dict(model_type="llama", hidden_size=3072, num_hidden_layers=28, num_attention_heads=24,
                         num_key_value_heads=8, head_dim=128, intermediate_size=8192, vocab_size=128256,
                         max_position_embeddings=131072, tie_word_embeddings=True, hidden_act="silu",
                         attention_bias=False, attention_dropout=0.0, mlp_bias=False),
    "llama-2-7b": dict(model_type="llama", hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
                       num_key_value_heads=32, intermediate_size=11008, vocab_size=32000,
                       max_position_embeddings=4096, tie_word_embeddings=False, hidden_act="silu"),
    "llama-3.1-8b": dict(model_type="llama", hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
                         num_key_value_heads=8, intermediate_size=14336, vocab_size=128256,
                         max_position_embeddings=131072, tie_word_embeddings=False, hidden_act="silu",
                         attention_bias=False, attention_dropout=0.0, mlp_bias=False),
    "llama-2-70b": dict(model_type="llama", hidden_size=8192, num_hidden_layers=80, num_attention_heads=64,
                        num_key_value_heads=8, intermediate_size=28672, vocab_size=32000,
                        max_position_embeddings=4096, tie_word_embeddings=False, hidden_act="silu"),
    "gemma-2b": dict(model_type="gemma", hidden_size=2048, num_hidden_layers=18, num_attention_heads=8,
                     num_key_value_heads=1, head_dim=256, intermediate_size=16384, vocab_size=256000,
                     max_position_embeddings=8192, tie_word_embeddings=True, hidden_act="gelu_pytorch_tanh",
                     attention_bias=False, attention_dropout=0.0),
}
TINY = {"gpt2": dict(model_type="gpt2", n_embd=64, n_head=4, n_layer=2, vocab_size=512, n_positions=64),
        "llama": dict(model_type="llama", hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                      intermediate_size=128, vocab_size=512, num_hidden_layers=2, max_position_embeddings=64)}


def step_setups(tiny):
    """(model, layers or None for all, keys of memplan); in order of worth."""
    if tiny:
        yield "gpt2", None, dict(precision="bf16-amp", micro_batch=2, seq_len=32)
        yield "llama", 1, dict(precision="bf16", micro_batch=1, seq_len=32, recompute="full", optimizer_impl="foreach")
        yield "llama", None, dict(precision="bf16", lora_rank=8, lora_targets="all-linear", seq_len=32)
        return
    yield "llama-3.2-1b", None, dict(precision="bf16", seq_len=4096)
    yield "llama-3.2-1b", None, dict(precision="bf16-amp", seq_len=4096)
    yield "gpt2", None, dict(precision="bf16-amp", micro_batch=8, seq_len=1024)
    yield "llama-2-7b", 4, dict(precision="bf16", micro_batch=2, seq_len=4096)
    yield "llama-3.1-8b", 4, dict(precision="bf16", seq_len=8192)
    yield "gpt2", None, dict(precision="bf16", seq_len=1024)
    yield "qwen2.5-1.5b", None, dict(precision="bf16-amp", seq_len=4096)
    yield "llama-3.2-3b", None, dict(precision="bf16", seq_len=4096)
    yield "llama-3.2-1b", None, dict(precision="bf16", micro_batch=4, seq_len=2048, recompute="full")
    yield "pythia-410m", None, dict(precision="bf16-amp", micro_batch=4, seq_len=2048)
    yield "llama-2-7b", None, dict(precision="bf16", seq_len=4096, recompute="full")
    yield "llama-2-70b", 2, dict(precision="bf16", seq_len=4096)
    yield "llama-3.2-1b", None, dict(precision="bf16", seq_len=1024)
    yield "llama-2-7b", 4, dict(precision="bf16-amp", micro_batch=2, seq_len=4096)
    yield "gemma-2b", None, dict(precision="bf16", seq_len=4096)
    yield "gpt2-xl", None, dict(precision="bf16-amp", micro_batch=4, seq_len=1024)
    yield "llama-3.2-1b", None, dict(precision="bf16", seq_len=4096, optimizer_impl="foreach")
    yield "opt-1.3b", None, dict(precision="bf16", micro_batch=4, seq_len=2048)
    yield "llama-3.2-1b", None, dict(precision="bf16", seq_len=2048, attention="eager")
    yield "llama-3.2-1b", None, dict(precision="bf16", micro_batch=2, seq_len=8192, recompute="full")
    yield "pythia-410m", None, dict(precision="bf16", seq_len=1024)
    yield "gpt2", None, dict(precision="fp32", micro_batch=4, seq_len=1024, attention="sdpa")
    yield "llama-3.1-8b", 4, dict(precision="bf16-amp", seq_len=4096, recompute="full")
    yield "llama-3.2-1b", None, dict(precision="bf16", seq_len=4096, compile=True)
    yield "gpt2", None, dict(precision="bf16-amp", micro_batch=8, seq_len=1024, compile=True)
    yield "llama-2-7b", None, dict(precision="bf16", micro_batch=1, seq_len=2048, lora_rank=16,
                                   lora_targets="all-linear")
    yield "gpt2", None, dict(precision="bf16-amp", micro_batch=1, seq_len=1024, optimizer_impl="foreach")


# ---- clocks ----


class Clock:
    """The SM clock and the power drawn, as the driver says; read only."""

    def __init__(self, on):
        self.seen, self.child = [], None
        if not on:
            return
        try:
            self.child = subprocess.Popen(
                ["nvidia-smi", "--query-gpu=clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader,nounits",
                 "-lms", "100"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            threading.Thread(target=self.follow, daemon=True).start()
        except OSError as error:
            print("no nvidia-smi:", error)

    def follow(self):
        for line in self.child.stdout:
            try:
                self.seen.append((time.time(), *[float(x) for x in line.split(",")]))
            except ValueError:
                pass

    def since(self, start):
        """Medians of clock (MHz) and power (W) from then on; of the last reading where there is none."""
        found = [x for x in self.seen if x[0] >= start + 0.1] or self.seen[-1:]
        return [round(statistics.median(x[i] for x in found), 1) for i in (1, 2)] if found else ["", ""]

    def stop(self):
        if self.child:
            self.child.terminate()


class Place:
    """The device, what time is left, and how something is timed there."""

    def __init__(self, given):
        self.where, self.tiny, self.out = given.device, given.tiny, pathlib.Path(given.out)
        self.begin, self.seconds = time.time(), given.seconds
        self.cuda = self.where == "cuda"
        self.clock = Clock(self.cuda)
        self.rate = 2e9  # of the sleeping kernel's clock, at most

    def left(self, until):
        return self.begin + until * self.seconds - time.time()

    def sync(self):
        if self.cuda:
            torch.cuda.synchronize()

    def event(self):
        if self.cuda:
            e = torch.cuda.Event(enable_timing=True)
            e.record()
            return e
        return time.perf_counter()

    def between(self, a, b):
        return a.elapsed_time(b) * 1e-3 if self.cuda else b - a

    def isolated(self, calls, pause=0.002, count=7, host=None):
        """Each call of the list in turn, count times; behind a sleeping kernel as long as the host needs."""
        for call in calls[:2]:
            call()
        self.sync()
        if host is None:
            host = 0
            for _ in range(2):
                t = time.perf_counter()
                calls[0]()
                host = time.perf_counter() - t
                self.sync()
        times = []
        for i in range(count):
            time.sleep(pause)
            if self.cuda:
                torch.cuda._sleep(int((1.3 * host + 6e-5) * self.rate))
            a = self.event()
            calls[i % len(calls)]()
            b = self.event()
            self.sync()
            times.append(self.between(a, b))
        return statistics.median(times)

    def sustained(self, calls, each, seconds=0.4):
        """Back to back, as a graph where that can be; (seconds a call, MHz, W)."""
        if not self.cuda:
            return each, "", ""
        inner = max(1, min(50, int(0.004 / each)))
        replay = None
        if each < 1e-4:
            try:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    for i in range(inner):
                        calls[i % len(calls)]()
                replay = graph.replay
            except Exception as error:
                print("no graph:", str(error)[:100])
                self.sync()
        if replay is None:
            def replay():
                for i in range(inner):
                    calls[i % len(calls)]()
        count = max(2, int(seconds / (each * inner)))
        start = time.time()
        for _ in range(max(1, count // 3)):
            replay()
        a = self.event()
        for _ in range(count - count // 3):
            replay()
        b = self.event()
        self.sync()
        return (self.between(a, b) / ((count - count // 3) * inner), *self.clock.since(start))


def copies_of(place, size):
    """How many operands of that many bytes are more than the cache holds."""
    return max(2, min(48, int(160e6 / max(size, 1)))) if place.cuda else 2


def clear(place):
    gc.collect()
    if place.cuda:
        place.sync()
        torch.cuda.empty_cache()


class Table:
    """A CSV file, written line by line."""

    def __init__(self, place, name, head):
        self.file = open(place.out / name, "w")
        self.file.write(head + "\n")

    def row(self, *cells):
        self.file.write(",".join(f"{c:.4g}" if isinstance(c, float) else str(c) for c in cells) + "\n")
        self.file.flush()


def failed(what):
    lines = traceback.format_exc().strip().splitlines()
    print("FAILED", what, "|", lines[-1][:300], "|", " ".join(x.strip() for x in lines[-4:-1])[:300], flush=True)


# ---- a: whole steps ----

KINDS = [("optimizer", ("FusedAdam", "fused_adam", "FusedOptimizer")),
         ("foreach", ("multi_tensor_apply",)),
         ("attention", ("flash", "fmha", "attention", "cudnn_generated", "sdpa")),
         ("product", ("gemm", "nvjet", "cutlass", "xmma", "cublas", "splitK", "wgmma")),
         ("loss", ("oftmax", "nll_loss", "NLL", "ross_entropy", "CrossEntropy")),
         ("copy", ("Memcpy", "Memset")),
         ("norm", ("layer_norm", "LayerNorm", "rms_norm", "RMSNorm", "RowwiseMoments", "GammaBeta")),
         ("embedding", ("embedding", "Embedding", "indexSelect", "index_put", "radix", "Radix", "sort")),
         ("reduce", ("reduce",)), ("dropout", ("ropout",)), ("triton", ("triton",)),
         ("element", ("elementwise", "vectorized", "CatArray", "fill"))]


def kind_of(name):
    for kind, words in KINDS:
        if any(w in name for w in words):
            return kind
    return "other"


def build(place, model, layers, keys):
    import transformers
    config = dict((TINY if place.tiny else MODELS)[model])
    if layers:
        config["n_layer" if "n_layer" in config else "num_hidden_layers"] = layers
    made = transformers.AutoConfig.for_model(**config)
    made.use_cache = False
    stored = torch.bfloat16 if keys["precision"] == "bf16" else torch.float32
    name = "eager" if keys["attention"] == "eager" else "sdpa"
    with torch.device(place.where):
        net = transformers.AutoModelForCausalLM.from_config(made, dtype=stored, attn_implementation=name)
    with torch.no_grad():
        for p in net.parameters():
            if p.dim() > 1:
                p.normal_(0, 0.02)
    if "lora_rank" in keys:
        import peft
        net = peft.get_peft_model(net, peft.LoraConfig(r=keys["lora_rank"], lora_alpha=32, target_modules="all-linear",
                                                       lora_dropout=0.0, task_type="CAUSAL_LM"))
    if keys.get("recompute") == "full":
        net.gradient_checkpointing_enable(dict(use_reentrant=False))
    net.train()
    if keys.get("compile"):
        net = torch.compile(net)
    return config, net, made.vocab_size


class Stepper:
    """Steps of one model, and the events between forward, backward, clipping and the optimizer."""

    def __init__(self, place, net, vocab, keys):
        self.place, self.net, self.keys = place, net, keys
        self.mine = [p for p in net.parameters() if p.requires_grad]
        kind = keys["optimizer_impl"]
        self.optimizer = torch.optim.AdamW(self.mine, lr=1e-5, fused=kind == "fused", foreach=kind == "foreach")
        self.tokens(vocab, keys["micro_batch"], keys["seq_len"])
        self.vocab = vocab
        self.clip = lambda: torch.nn.utils.clip_grad_norm_(self.mine, 1.0, foreach=True)

    def tokens(self, vocab, batch, length):
        self.ids = torch.randint(0, vocab, (batch, length), device=self.place.where)

    def mark(self):
        if self.marking:  # a kernel of a known name, for the profiler
            torch.cuda._sleep(100)
        self.at.append(self.place.event())
        self.host.append(time.perf_counter())

    def __call__(self, marking=False):
        self.at, self.host, self.marking = [], [], marking and self.place.cuda
        self.mark()
        with torch.autocast(self.place.where, torch.bfloat16, enabled=self.keys["precision"] == "bf16-amp"):
            loss = self.net(input_ids=self.ids, labels=self.ids).loss
        self.mark()
        loss.backward()
        self.mark()
        self.clip()
        self.mark()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.mark()

    def run(self, count, least, most, synced=False):
        """Steps for at least so many seconds: medians of the device's and of the host's phases, and of the whole."""
        place = self.place
        seen = []
        start = time.time()
        place.sync()
        while len(seen) < count or time.time() - start < least:
            if len(seen) >= 2 and time.time() - start > most:
                break
            self()
            seen.append((self.at, self.host))
            if synced or len(seen) % 4 == 0:
                place.sync()  # the host is never more than 4 steps ahead
        place.sync()
        steps = [place.between(x[0][0], x[0][-1]) for x in seen]
        whole = [place.between(a[0][0], b[0][0]) for a, b in zip(seen, seen[1:])]
        phases = [statistics.median(place.between(x[0][i], x[0][i + 1]) for x in seen) for i in range(4)]
        host = [statistics.median(x[1][i + 1] - x[1][i] for x in seen) for i in range(4)]
        return dict(step=statistics.median(whole), inside=statistics.median(steps), phases=phases, host=host,
                    all=[round(x, 6) for x in whole], clock=place.clock.since(start))


PHASES = ("forward", "backward", "clip", "optimizer")


def profile(place, stepper):
    """Kernels of one step: by phase, name: [count, microseconds]; and all in order."""
    if not place.cuda:
        return {}
    from torch.profiler import ProfilerActivity
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as prof:
        for _ in range(2):
            stepper(marking=True)
        place.sync()
    kernels = []
    for e in prof.profiler.kineto_results.events():
        if "CUDA" in str(e.device_type()) and not e.name().startswith("Optimizer."):
            start = e.start_ns() if hasattr(e, "start_ns") else e.start_us() * 1000
            length = e.duration_ns() if hasattr(e, "duration_ns") else e.duration_us() * 1000
            kernels.append((start, length, e.name()))
    kernels.sort()
    marks = [i for i, k in enumerate(kernels) if "spin" in k[2]]
    if len(marks) != 10:
        print("marks:", len(marks), "of 10 among", len(kernels))
        return dict(kernels=len(kernels), first=[k[2][:80] for k in kernels[:30]])
    names, order, phases, kinds = {}, [], {}, {}
    for phase, a, b in zip(PHASES, marks[5:9], marks[6:10]):
        sums, listed, by = {}, [], {}
        for start, length, name in kernels[a + 1:b]:
            name = name[:200]
            listed.append([names.setdefault(name, len(names)), round(length / 1000, 2)])
            s = by.setdefault(kind_of(name), [0, 0.0])
            s[0] += 1
            s[1] = round(s[1] + length / 1000, 2)
        busy = sum(k[1] for k in kernels[a + 1:b])
        span = kernels[b][0] - kernels[a][0]
        phases[phase] = dict(busy_us=busy / 1000, span_us=span / 1000, kernels=b - a - 1)
        kinds[phase] = by
        order.append(listed)
    return dict(kinds=kinds, phases=phases, names=list(names), order=order)


def name_of(model, layers, keys):
    parts = [f"{k.replace('_', '')}{v}" for k, v in keys.items()]
    return "-".join(["gputime", model + (f"-{layers}l" if layers else ""), *parts]).lower()


def one_step(place, model, layers, given, versions):
    keys = dict(dict(micro_batch=1, attention="flash", optimizer_impl="fused"), **given)
    started = time.time()
    config, net, vocab = build(place, model, layers, keys)
    stepper = Stepper(place, net, vocab, keys)
    place.sync()
    built = time.time()
    for _ in range(2):
        stepper()
        place.sync()
    ready = time.time()
    compiled = bool(keys.get("compile"))
    warm = stepper.run(2, 0.0 if place.tiny else 0.7, 4)
    done = stepper.run(2 if place.tiny else 8, 0.0 if place.tiny else 1.0, 6)
    detail = dict(name=name_of(model, layers, given), warm=warm["step"], **done, built_s=built - started,
                  ready_s=ready - built)
    if place.cuda:
        detail["peak_allocated"] = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    try:
        detail["profile"] = profile(place, stepper)
    except Exception:
        failed("profile of " + detail["name"])
    if not compiled:  # another shape would compile again
        try:
            stepper.tokens(vocab, 1, 16)
            stepper()
            detail["short"] = stepper.run(4, 0, 2, synced=True)  # of 16 tokens: the host's time, and the optimizer's
        except Exception:
            failed("short steps of " + detail["name"])
    row = dict(id=detail["name"], source=f"memplan tests/oracle/gpu_time.py, {versions}", group="oracle-gpu-time",
               kind="throughput", tier="A", model=config if layers or place.tiny else model,
               setup=dict(framework="hf", gpu="h100-80gb", gpus=1, **keys),
               measured=dict(metric="step_time_s", value=round(done["step"], 6)), notes="")
    return row, detail


def versions_of(place):
    import transformers
    device = torch.cuda.get_device_name() if place.cuda else "a CPU"
    return f"torch {torch.__version__}, transformers {transformers.__version__}, {device}"


class Steps:
    """Part a: as many as fit, the rest when the other parts are done."""

    def __init__(self, place, only):
        self.place, self.only, self.todo = place, only, list(step_setups(place.tiny))
        self.rows = open(place.out / "steps.jsonl", "w")
        self.details = dict(versions=versions_of(place), python=sys.version, steps=[])
        if place.cuda:
            p = torch.cuda.get_device_properties(0)
            self.details["device"] = str(p)

    def run(self, until):
        while self.todo and (self.place.left(until) > 6 or self.place.tiny):
            model, layers, keys = self.todo.pop(0)
            name = name_of(model, layers, keys)
            if self.only and self.only not in name:
                continue
            begin = time.time()
            try:
                row, detail = one_step(self.place, model, layers, keys, self.details["versions"])
                self.rows.write(json.dumps(row) + "\n")
                self.rows.flush()
                self.details["steps"].append(detail)
                self.write()
                print(f"{name} {detail['step'] * 1e3:.2f} ms", [f"{x * 1e3:.2f}" for x in detail["phases"]],
                      "host", [f"{x * 1e3:.1f}" for x in detail.get("short", detail)["host"]], detail["clock"],
                      f"in {time.time() - begin:.1f} s", flush=True)
            except Exception:
                failed(name)
            if keys.get("compile"):
                torch._dynamo.reset()
            clear(self.place)

    def write(self):
        with open(self.place.out / "details.json", "w") as out:
            json.dump(self.details, out)


# ---- b: matrix products ----

LINEARS = [  # tokens, out, in: of GPT-2, Llama and GPT-3, whole and in parts of tensor parallelism
    (4096, 4096, 4096), (8192, 11008, 4096), (8192, 4096, 11008), (8192, 12288, 4096), (8192, 768, 3072),
    (8192, 3072, 768), (1024, 2304, 768), (4096, 2048, 2048), (4096, 8192, 2048), (4096, 512, 2048),
    (4096, 128256, 2048), (8192, 50257, 768), (4096, 14336, 4096), (8192, 1024, 4096), (4096, 28672, 8192),
    (4096, 8192, 8192), (8192, 7168, 8192), (8192, 8192, 3584), (8192, 13312, 16384), (8192, 16384, 6656),
    (2048, 4608, 12288), (2048, 6144, 12288), (8192, 1536, 4096), (16384, 5120, 5120), (1024, 2048, 2048),
    (2048, 8192, 3072), (4096, 1536, 8960), (8192, 32000, 4096)]
TINY_LINEARS = [(64, 32, 16), (32, 33, 16)]


def operands(place, m, n, k, layout):
    """a (m, k) and b (k, n), stored as forward (TN), the input's gradient (NN) and the weight's (NT) have them."""
    def make(r, c):
        return torch.randn(r, c, device=place.where, dtype=torch.bfloat16)
    a = make(k, m).t() if layout == "wgrad" else make(m, k)
    b = make(n, k).t() if layout == "forward" else make(k, n)
    return a, b


def shape_of(linear, layout):
    t, o, i = linear
    return {"forward": (t, o, i), "dgrad": (t, i, o), "wgrad": (o, i, t)}[layout]


def product_calls(place, m, n, k, layout):
    size = 2 * (m * k + k * n + m * n)
    calls = []
    for _ in range(copies_of(place, size)):
        a, b = operands(place, m, n, k, layout)
        y = torch.empty(m, n, device=place.where, dtype=torch.bfloat16)
        calls.append(lambda a=a, b=b, y=y: torch.mm(a, b, out=y))
    return calls


def products(place, table, until):
    for linear in TINY_LINEARS if place.tiny else LINEARS:
        for layout in ("forward", "dgrad", "wgrad"):
            if place.left(until) < 0:
                return
            m, n, k = shape_of(linear, layout)
            try:
                calls = product_calls(place, m, n, k, layout)
                one = place.isolated(calls, pause=0.005)
                table.row("bf16", layout, m, n, k, one, *place.sustained(calls, one))
            except Exception:
                failed(f"product {layout} {m} {n} {k}")
            calls = None
        clear(place)


LINEARS_8 = [(8192, 11008, 4096), (4096, 4096, 4096), (8192, 4096, 14336), (8192, 8192, 3584), (8192, 1024, 4096),
             (8192, 7168, 8192), (4096, 28672, 8192), (8192, 13312, 16384), (16384, 5120, 5120), (4096, 8192, 2048),
             (2048, 4608, 12288), (1024, 2048, 2048)]


def product_8_calls(place, m, n, k, rows, fast):
    kind = torch.float8_e4m3fn
    calls = []
    for _ in range(copies_of(place, m * k + k * n + 2 * m * n)):
        a = torch.randn(m, k, device=place.where, dtype=torch.bfloat16).to(kind)
        b = torch.randn(n, k, device=place.where, dtype=torch.bfloat16).to(kind).t()
        sa = torch.ones((m, 1) if rows else (), device=place.where)
        sb = torch.ones((1, n) if rows else (), device=place.where)
        calls.append(lambda a=a, b=b, sa=sa, sb=sb: torch._scaled_mm(a, b, scale_a=sa, scale_b=sb,
                                                                    out_dtype=torch.bfloat16, use_fast_accum=fast))
    return calls


def products_8(place, table, until):
    for linear in [(64, 32, 16)] if place.tiny else LINEARS_8:
        for rows, fast in ((False, True), (True, True), (False, False)):
            if place.left(until) < 0:
                return
            m, n, k = linear
            name = ("row" if rows else "tensor") + ("-fast" if fast else "-exact")
            try:
                calls = product_8_calls(place, m, n, k, rows, fast)
                one = place.isolated(calls, pause=0.005)
                table.row("fp8", name, m, n, k, one, *place.sustained(calls, one, 0.3))
            except Exception:
                failed(f"product of 8 bits {name} {m} {n} {k}")
            calls = None
        clear(place)


# ---- c: attention ----

ATTENTIONS = [  # batch, heads, heads of keys, length, width, causal
    (4, 32, 8, 4096, 128, True), (4, 32, 32, 4096, 128, True), (8, 32, 32, 2048, 128, True),
    (8, 32, 8, 1024, 64, True), (4, 32, 8, 4096, 64, True), (16, 12, 12, 1024, 64, True), (2, 32, 8, 8192, 128, True),
    (16, 32, 8, 512, 128, True), (16, 32, 8, 1024, 128, True), (1, 32, 8, 16384, 128, True),
    (1, 32, 8, 32768, 128, True), (4, 8, 1, 4096, 256, True), (1, 32, 8, 4096, 64, True), (32, 12, 12, 512, 64, False),
    (4, 32, 32, 4096, 128, False), (8, 16, 16, 2048, 64, True), (1, 24, 8, 4096, 128, True), (1, 16, 2, 1024, 64, True),
    (2, 32, 8, 8192, 64, True), (1, 32, 8, 16384, 64, True), (8, 25, 25, 1024, 64, True)]


def attend(place, shape, backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    b, h, g, s, d, causal = shape
    which = getattr(SDPBackend, dict(flash="FLASH_ATTENTION", cudnn="CUDNN_ATTENTION", efficient="EFFICIENT_ATTENTION",
                                     math="MATH")[backend])
    same = backend in ("efficient", "math")  # keys are repeated for these, by transformers
    def make(heads):
        x = torch.randn(b, s, heads, d, device=place.where, dtype=torch.bfloat16)
        return x.transpose(1, 2).requires_grad_()
    q, k, v = make(h), make(h if same else g), make(h if same else g)
    up = torch.randn(b, s, h, d, device=place.where, dtype=torch.bfloat16).transpose(1, 2)
    def forward():
        with sdpa_kernel(which):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=not same and h != g)
    y = forward()
    def backward():
        torch.autograd.grad(y, (q, k, v), up, retain_graph=True)
    one, back = place.isolated([forward], count=5), place.isolated([backward], count=5)
    more, mhz, watt = place.sustained([forward], max(one, 2e-4), 0.25)
    backs, mhz2, watt2 = place.sustained([backward], max(back, 2e-4), 0.25)
    return one, back, more, backs, mhz2, watt2


def attentions(place, until):
    table = Table(place, "attention.csv", "backend,batch,heads,kv_heads,length,width,causal,forward_s,backward_s,"
                                          "forward_sustained_s,backward_sustained_s,mhz,watt")
    shapes = [(2, 4, 2, 32, 16, True)] if place.tiny else ATTENTIONS
    for backend in ("math",) if place.tiny else ("flash", "cudnn", "efficient", "math"):
        for shape in shapes:
            if place.left(until) < 0:
                return
            if backend == "math" and (shape[3] > 2048 or shape[0] * shape[1] * shape[3] ** 2 > 1.2e9) and not place.tiny:
                continue
            try:
                table.row(backend, *shape[:5], int(shape[5]), *attend(place, shape, backend))
            except Exception:
                failed(f"attention {backend} {shape}")
        clear(place)


# ---- d: what moves bytes ----


def eager_rms(x, w, eps=1e-6):
    kind = x.dtype
    x = x.to(torch.float32)
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return w * x.to(kind)


def eager_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


def rotary(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def elements(place, rows, width):
    """name: (makes operands, function of them, whether it has a backward, bytes that a single pass would move)."""
    where = place.where
    half, full = torch.bfloat16, torch.float32
    n = rows * width

    def rand(*shape, kind=half, grad=True):
        x = torch.randn(*shape, device=where, dtype=kind)
        return x.requires_grad_() if grad else x

    def heads(x):
        return x.view(1, rows, width // 64, 64).transpose(1, 2)
    big, vec = (rows, width), (width,)
    return {
        "add": (lambda: (rand(*big), rand(*big)), lambda a, b: a + b, False, 6 * n),
        "add_fp32": (lambda: (rand(*big, kind=full), rand(*big, kind=full)), lambda a, b: a + b, False, 12 * n),
        "add_bf16_fp32": (lambda: (rand(*big), rand(*big, kind=full)), lambda a, b: a + b, False, 10 * n),
        "mul": (lambda: (rand(*big), rand(*big)), lambda a, b: a * b, True, 6 * n),
        "add_in_place": (lambda: (rand(*big, grad=False), rand(*big, grad=False)), lambda a, b: a.add_(b), False, 6 * n),
        "rms_eager": (lambda: (rand(*big), rand(*vec)), eager_rms, True, 4 * n),
        "rms_eager_amp": (lambda: (rand(*big), rand(*vec, kind=full)), eager_rms, True, 6 * n),
        "rms_fused": (lambda: (rand(*big), rand(*vec)), lambda x, w: F.rms_norm(x, vec, w, 1e-6), True, 4 * n),
        "layer_norm": (lambda: (rand(*big), rand(*vec), rand(*vec)), lambda x, w, b: F.layer_norm(x, vec, w, b), True,
                       4 * n),
        "layer_norm_fp32": (lambda: (rand(*big, kind=full), rand(*vec, kind=full), rand(*vec, kind=full)),
                            lambda x, w, b: F.layer_norm(x, vec, w, b), True, 8 * n),
        "silu": (lambda: (rand(*big),), F.silu, True, 4 * n),
        "swiglu": (lambda: (rand(*big), rand(*big)), lambda g, u: F.silu(g) * u, True, 10 * n),
        "gelu": (lambda: (rand(*big),), F.gelu, True, 4 * n),
        "gelu_tanh": (lambda: (rand(*big),), lambda x: F.gelu(x, approximate="tanh"), True, 4 * n),
        "gelu_eager": (lambda: (rand(*big),), eager_gelu, True, 4 * n),
        "relu": (lambda: (rand(*big),), F.relu, True, 4 * n),
        "rotary": (lambda: (rand(*big), rand(rows, 64, grad=False), rand(rows, 64, grad=False)),
                   lambda x, c, s: rotary(heads(x), c, s), True, 4 * n),
        "dropout": (lambda: (rand(*big),), lambda x: F.dropout(x, 0.1), True, 5 * n),
        "softmax_fp32": (lambda: (rand(*big, kind=full),), lambda x: F.softmax(x, -1), True, 8 * n),
        "softmax_to_fp32": (lambda: (rand(*big),), lambda x: F.softmax(x, -1, dtype=torch.float32), True, 6 * n),
        "to_bf16": (lambda: (rand(*big, kind=full),), lambda x: x.to(half), True, 6 * n),
        "to_fp32": (lambda: (rand(*big),), lambda x: x.to(full), True, 6 * n),
        "copy": (lambda: (rand(*big, grad=False),), lambda x: x.clone(), False, 4 * n),
        "transposed": (lambda: (rand(*big),), lambda x: heads(x).contiguous(), True, 4 * n),
        "fill": (lambda: (rand(*big, grad=False),), lambda x: x.zero_(), False, 2 * n),
        "scale": (lambda: (rand(*big),), lambda x: x * 0.5, True, 4 * n),
        "cat": (lambda: (rand(*big), rand(*big)), lambda a, b: torch.cat((a, b), -1), True, 8 * n),
        "bias_gradient": (lambda: (rand(*big, grad=False),), lambda x: x.sum(0), False, 2 * n),
        "fp8_cast": (lambda: (rand(*big, grad=False),), lambda x: x.to(torch.float8_e4m3fn), False, 3 * n),
        "amax": (lambda: (rand(*big, grad=False),), lambda x: x.abs().max(), False, 2 * n),
    }


def time_both(place, made, function, back):
    """(isolated forward, backward, sustained forward, backward); of operands in turn that the cache does not hold."""
    calls, backs = [], []
    for operands_ in made:
        calls.append(lambda o=operands_: function(*o))
        if back:
            y = function(*operands_)
            up = torch.randn_like(y)
            wanted = [x for x in operands_ if x.requires_grad]
            backs.append(lambda y=y, up=up, w=wanted: torch.autograd.grad(y, w, up, retain_graph=True))
    one = place.isolated(calls, pause=0.0005)
    two = place.isolated(backs, pause=0.0005) if back else 0.0
    more = place.sustained(calls, max(one, 4e-5), 0.06)[0] if one > 3e-5 else 0.0
    mores = place.sustained(backs, max(two, 2e-4), 0.06)[0] if two > 1.5e-4 else 0.0
    return one, two, more, mores


def elementwise(place, until):
    table = Table(place, "elementwise.csv", "kind,elements,rows,width,ideal_bytes,forward_s,backward_s,"
                                            "forward_sustained_s,backward_sustained_s")
    shapes = [(8, 64)] if place.tiny else [(8192, 4096), (2048, 2048), (16384, 14336), (256, 2048)]
    for rows, width in shapes:
        for name, (make, function, back, size) in elements(place, rows, width).items():
            if place.left(until) < 0:
                break
            try:
                made = [make() for _ in range(copies_of(place, size))]
                table.row(name, rows * width, rows, width, size, *time_both(place, made, function, back))
            except Exception:
                failed(f"{name} {rows} {width}")
            made = None
        clear(place)
    for part in (losses, embeddings, optimizers):
        try:
            part(place, table)
        except Exception:
            failed(part.__name__)
        clear(place)


def losses(place, table):
    """As transformers computes it: logits cast to fp32, then cross entropy."""
    for rows, vocab in ((8, 100),) if place.tiny else ((4096, 128256), (1024, 128256), (8192, 32000), (8192, 50257)):
        for kind in (torch.bfloat16, torch.float32):
            x = torch.randn(rows, vocab, device=place.where, dtype=kind, requires_grad=True)
            labels = torch.randint(0, vocab, (rows,), device=place.where)
            def loss(x):
                return F.cross_entropy(x.float(), labels)
            name = "cross_entropy" + ("_fp32" if kind == torch.float32 else "")
            table.row(name, rows * vocab, rows, vocab, 0, *time_both(place, [(x,)], loss, True))
            x = None
            clear(place)


def embeddings(place, table):
    for rows, vocab, width in ((8, 100, 16),) if place.tiny else ((4096, 128256, 2048), (8192, 50257, 768),
                                                                 (8192, 32000, 4096), (1024, 128256, 2048)):
        for kind in (torch.bfloat16, torch.float32):
            w = torch.randn(vocab, width, device=place.where, dtype=kind, requires_grad=True)
            ids = torch.randint(0, vocab, (rows,), device=place.where)
            name = f"embedding_{vocab}" + ("_fp32" if kind == torch.float32 else "")
            table.row(name, rows * width, rows, width, 0,
                      *time_both(place, [(w,)], lambda w: F.embedding(ids, w), True))
            w = None
            clear(place)


def optimizers(place, table):
    """AdamW and clipping over weights as a transformer has them: layers of four large and two small tensors."""
    for width, layers in ((16, 2),) if place.tiny else ((4096, 4), (2048, 16), (768, 12)):
        for kind in (torch.bfloat16, torch.float32):
            shapes = [(width, width), (3 * width, width), (4 * width, width), (width, 4 * width), (width,), (width,)]
            weights = [torch.randn(*s, device=place.where, dtype=kind, requires_grad=True)
                       for _ in range(layers) for s in shapes]
            count = sum(w.numel() for w in weights)
            for w in weights:
                w.grad = torch.randn_like(w)
            tail = "_fp32" if kind == torch.float32 else ""
            for impl in ("fused", "foreach", "loop"):
                given = dict(fused=impl == "fused", foreach=impl == "foreach")
                optimizer = torch.optim.AdamW(weights, lr=1e-5, **given)
                optimizer.step()
                t = place.isolated([optimizer.step], count=3)
                a = time.perf_counter()
                optimizer.step()
                host = time.perf_counter() - a
                table.row(f"adamw_{impl}{tail}", count, len(weights), width, 0, t, host, 0.0, 0.0)
                optimizer = None
                clear(place)
            for each in (True, False):
                def clip():
                    torch.nn.utils.clip_grad_norm_(weights, 1.0, foreach=each)
                t = place.isolated([clip], count=3)
                a = time.perf_counter()
                clip()
                host = time.perf_counter() - a
                table.row(f"clip_{'foreach' if each else 'loop'}{tail}", count, len(weights), width, 0, t, host, 0.0, 0.0)
            weights = None
            clear(place)


# ---- e: the host ----


def host_time(place, call, count):
    call()
    place.sync()
    times = []
    for _ in range(5):
        t = time.perf_counter()
        for _ in range(count):
            call()
        place.sync()
        times.append((time.perf_counter() - t) / count)
    return statistics.median(times)


class Empty(torch.nn.Module):
    def forward(self, x):
        return x


def chain(place, kind, count):
    """Forward and backward of a chain of tiny operations; seconds an operation, each with its graph."""
    x = torch.ones(4, 64, device=place.where, dtype=kind, requires_grad=True)
    def forward():
        y = x
        for _ in range(count):
            y = y * 1.0
        return y.sum()
    a = host_time(place, forward, 1) / count
    def both():
        forward().backward()
    return a, host_time(place, both, 1) / count - a


def linears(place, amp, count):
    net = torch.nn.Sequential(*[torch.nn.Linear(64, 64, bias=False, device=place.where,
                                                dtype=torch.float32 if amp else torch.bfloat16) for _ in range(count)])
    x = torch.randn(4, 64, device=place.where, dtype=torch.float32 if amp else torch.bfloat16)
    def forward():
        with torch.autocast(place.where, torch.bfloat16, enabled=amp):
            return net(x)
    a = host_time(place, forward, 1) / count
    def both():
        forward().float().sum().backward()
        net.zero_grad()
    return a, host_time(place, both, 1) / count - a


def hosts(place):
    table = Table(place, "host.csv", "what,forward_s,backward_s")
    n = 10 if place.tiny else 300
    small = torch.ones(64, device=place.where)
    m = torch.randn(64, 64, device=place.where, dtype=torch.bfloat16)
    empty = Empty()
    def pair():
        a = place.event()
        b = place.event()
        place.sync()
        return place.between(a, b)
    measures = {
        "event_pair": lambda: (statistics.median(pair() for _ in range(9)), 0.0),
        "add_in_place": lambda: (host_time(place, lambda: small.add_(1), n), 0.0),
        "add_no_grad": lambda: (host_time(place, lambda: small + 1, n), 0.0),
        "mm": lambda: (host_time(place, lambda: m @ m, n), 0.0),
        "module_call": lambda: (host_time(place, lambda: empty(small), n), 0.0),
        "chain_mul": lambda: chain(place, torch.float32, n),
        "linear_bf16": lambda: linears(place, False, n // 3),
        "linear_amp": lambda: linears(place, True, n // 3),
        "sdpa": lambda: (host_time(place, lambda: F.scaled_dot_product_attention(
            m.view(1, 4, 16, 64), m.view(1, 4, 16, 64), m.view(1, 4, 16, 64), is_causal=True), n), 0.0),
        "kernel_alone": lambda: (place.isolated([lambda: small.add_(1)]), 0.0),
        "ten_kernels": lambda: (place.isolated([lambda: [small.add_(1) for _ in range(10)]]), 0.0),
        "hundred_kernels": lambda: (place.isolated([lambda: [small.add_(1) for _ in range(100)]]), 0.0),
    }
    for name, measure in measures.items():
        try:
            table.row(name, *(float(x) for x in measure()))
        except Exception:
            failed("host " + name)


def arguments(seconds, parts):
    """A parser of what every program of times is told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--parts", default=parts)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    return parser


def begin(parser, place):
    """The arguments given, their folder made, and place(arguments)."""
    given = parser.parse_args()
    os.makedirs(given.out, exist_ok=True)
    torch.manual_seed(0)
    return given, place(given)


def main():
    parser = arguments(430, "abcde")
    parser.add_argument("--only", default="")
    given, place = begin(parser, Place)
    print(versions_of(place), "host", os.cpu_count(), flush=True)
    steps = Steps(place, given.only) if "a" in given.parts else None
    if steps:
        steps.run(0.47)
    def all_products():
        table = Table(place, "gemm.csv", "dtype,layout,m,n,k,isolated_s,sustained_s,mhz,watt")
        products(place, table, 0.61)
        products_8(place, table, 0.66)
    parts = {"b": all_products, "c": lambda: attentions(place, 0.77),
             "d": lambda: elementwise(place, 0.88), "e": lambda: hosts(place)}
    for letter, part in parts.items():
        begin = time.time()
        if letter in given.parts:
            try:
                part()
            except Exception:
                failed("part " + letter)
            clear(place)
            print(f"part {letter}: {time.time() - begin:.1f} s", flush=True)
    if steps:
        steps.run(1.0)
        steps.write()
    place.clock.stop()
    print(f"{time.time() - place.begin:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
