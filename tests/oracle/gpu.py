"""The same steps on a real GPU: one call measures 59 configurations, those the card cannot hold as such, and writes scoring rows.

Each configuration is a process of its own: a model of the catalogue (models/*.json, random weights), three steps, then
max_memory_allocated of the later two, memory_allocated between steps, max_memory_reserved, and what mem_get_info says is
gone.  FSDP2 and DDP run as rank 0 of up to 64 under PyTorch's fake process group: shards and buffers are real, NCCL is
not there, so device_total has no communicators and no row says so for them.  A configuration that runs out of memory
becomes an `oom` row.

usage: gpu.py OUT.jsonl [--gpu NAME] [--only TEXT]      on a machine with a GPU; NAME is the catalogue's (memplan gpus)
       gpu.py --dry-run [--memplan PROGRAM]             lists the setups; with the program, what it predicts
       gpu.py OUT.jsonl --device cpu                    a few tiny configurations, to exercise the code: figures are the
                                                        tracker's, there is no reserved
"""
import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN_KEYS = ("memplan", "name", "source", "notes", "parameters")
NAMES = {"A100-SXM4-80GB": "a100-80gb", "A100-SXM4-40GB": "a100-40gb", "A100 80GB PCIe": "a100-pcie-80gb",
         "H100 80GB HBM3": "h100-80gb", "H100 PCIe": "h100-pcie-80gb", "H100 NVL": "h100-nvl", "H200": "h200",
         "B200": "b200", "L4": "l4", "L40S": "l40s", "A10G": "a10g", "A10": "a10", "T4": "t4", "RTX 4090": "rtx-4090",
         "RTX 3090": "rtx-3090", "RTX A6000": "rtx-a6000"}


def setups():
    """(model, keys of memplan); the rest is the framework's default."""
    one = dict(framework="hf", gpus=1, attention="flash", optimizer_impl="fused", micro_batch=1, seq_len=1024)
    for model, length in (("gpt2", 1024), ("pythia-410m", 2048), ("qwen2.5-0.5b", 2048), ("llama-3.2-1b", 4096),
                          ("tinyllama-1.1b", 2048), ("opt-1.3b", 2048), ("gemma-2b", 2048), ("qwen2.5-1.5b", 4096),
                          ("llama-3.2-3b", 4096)):
        yield model, dict(one, seq_len=length, precision="bf16")
        yield model, dict(one, seq_len=length, precision="bf16-amp")
    for model in ("gpt2", "llama-3.2-1b"):
        for more in (dict(precision="fp32", attention="sdpa"), dict(precision="bf16", attention="eager"),
                     dict(precision="bf16-amp", recompute="full"),
                     dict(precision="bf16-amp", recompute="full", recompute_reentrant=True),
                     dict(precision="bf16", recompute="full", micro_batch=4),
                     dict(precision="bf16-amp", optimizer_impl="foreach"),
                     dict(precision="bf16-amp", optimizer_impl="loop"),
                     dict(precision="bf16-amp", optimizer="momentum", optimizer_impl="foreach"),
                     dict(precision="bf16-amp", grad_accum=4, micro_batch=2),
                     dict(precision="bf16", clip_grad=False, micro_batch=8),
                     dict(precision="bf16", optimizer_impl="fused", micro_batch=4, allocator="expandable")):
            yield model, dict(one, **more)
    many = dict(framework="fsdp", engine="fsdp2", precision="bf16-mixed", optimizer_impl="fused", attention="flash",
                micro_batch=1, seq_len=2048)
    for model in ("llama-3.2-1b", "llama-2-7b", "llama-3.1-8b"):
        for gpus in (8, 64):
            yield model, dict(many, gpus=gpus)
            yield model, dict(many, gpus=gpus, recompute="full", reduce_dtype="fp32", seq_len=4096)
    yield "llama-3.2-1b", dict(many, gpus=8, zero=2)
    yield "llama-3.2-1b", dict(many, gpus=8, grad_accum=2, optimizer_impl="foreach")
    yield "llama-2-13b", dict(many, gpus=64, recompute="full")
    for gpus in (8, 64):
        yield "gpt2", dict(one, gpus=gpus, precision="bf16-amp")
        yield "llama-3.2-1b", dict(one, gpus=gpus, precision="bf16", recompute="full")


def tiny():
    seen = []
    for model, keys in setups():
        small = "tiny-llama" if "llama" in model else "tiny-gpt2", dict(keys, seq_len=32, attention="eager")
        kind = [small[0]] + [keys.get(k) for k in ("precision", "engine", "recompute", "grad_accum", "zero", "reduce_dtype")]
        if keys["precision"] != "bf16-amp" and kind not in seen and len(seen) < 12:
            seen.append(kind)
            yield small


TINY = {"tiny-llama": dict(model_type="llama", hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                           intermediate_size=128, vocab_size=512, num_hidden_layers=2, max_position_embeddings=64),
        "tiny-gpt2": dict(model_type="gpt2", n_embd=64, n_head=4, n_layer=2, vocab_size=512, n_positions=64)}


def config_of(model):
    if model in TINY:
        return dict(TINY[model])
    spec = json.loads((ROOT / "models" / f"{model}.json").read_text())
    return {k: v for k, v in spec.items() if k not in OWN_KEYS and not k.startswith("x-")}


def name_of(model, keys):
    plain = dict(framework="hf", gpus=1, attention="flash", micro_batch=1, seq_len=1024, optimizer_impl="fused")
    parts = [f"{k}={v}" for k, v in keys.items() if plain.get(k) != v]
    return "-".join(["gpu", model, *parts]).replace("_", "").replace("=", "")


# ---- one configuration, in a process of its own ----


def measure_one(model, keys, where):
    if where == "cpu":
        import step  # noqa: F401  (its tracker; before torch)
    import torch
    import transformers

    stored = torch.bfloat16 if keys["precision"] == "bf16" else torch.float32
    config = transformers.AutoConfig.for_model(**config_of(model))
    config.use_cache = False
    name = "eager" if keys["attention"] == "eager" else "sdpa"
    with torch.device("meta"):
        net = transformers.AutoModelForCausalLM.from_config(config, dtype=stored, attn_implementation=name)
    if keys.get("recompute") == "full":
        net.gradient_checkpointing_enable(dict(use_reentrant=keys.get("recompute_reentrant", False)))
    net.train()
    watch = Watch(torch, where)
    with watch.following():
        rank = wrap(torch, net, keys, where)
        ids = torch.randint(0, config.vocab_size, (keys["micro_batch"], keys["seq_len"]), device=where)
        steps(torch, rank, ids, keys, where, watch)
    return watch.result


class Watch:
    """Memory figures of a GPU, or of the tracker on the CPU."""

    def __init__(self, torch, where):
        self.torch, self.where, self.result = torch, where, {}

    def following(self):
        if self.where != "cpu":
            return contextlib.nullcontext()
        import engines
        self.tracker = engines.Local(False)
        self.stack = contextlib.ExitStack()
        self.stack.enter_context(engines.follows(self.tracker))
        self.stack.enter_context(self.tracker)
        return self.stack

    def reset(self):
        if self.where == "cpu":
            self.tracker.enter("later")
        else:
            self.torch.cuda.synchronize()
            self.torch.cuda.reset_peak_memory_stats()
            self.reserved = self.torch.cuda.memory_reserved()

    def read(self):
        if self.where == "cpu":
            self.tracker.poll()
            self.result = dict(peak_allocated=self.tracker.phases["later"]["peak"], steady_allocated=self.tracker.now)
            return
        cuda = self.torch.cuda
        cuda.synchronize()
        free, total = cuda.mem_get_info()
        self.result = dict(peak_allocated=cuda.max_memory_allocated(), steady_allocated=cuda.memory_allocated(),
                           peak_reserved=max(self.reserved, cuda.max_memory_reserved()), device_total=total - free)


def wrap(torch, net, keys, where):
    """The model as the engine holds it, with weights of this rank only."""
    if keys["gpus"] > 1:
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=keys["gpus"])
    if keys.get("engine") == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        reduce = dict(reduce_dtype=torch.float32) if keys.get("reduce_dtype") == "fp32" else {}
        more = dict(mesh=init_device_mesh(where, (keys["gpus"],)), reshard_after_forward=keys.get("zero", 3) == 3,
                    mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, **reduce))
        layers = next(m for m in net.modules() if isinstance(m, torch.nn.ModuleList))
        for layer in layers:
            fully_shard(layer, **more)
        if more["reshard_after_forward"]:
            del more["reshard_after_forward"]  # the root keeps its parameters, as by default
        fully_shard(net, **more)
    net.to_empty(device=where)
    net.tie_weights()
    with torch.no_grad():
        for t in [*net.parameters(), *net.buffers()]:
            (t.to_local() if hasattr(t, "to_local") else t).fill_(0.01)
    if keys["gpus"] > 1 and keys.get("engine") != "fsdp2":
        def reduced(_, bucket):
            future = torch.futures.Future()
            future.set_result(bucket.buffer().div_(keys["gpus"]))
            return future
        net = torch.nn.parallel.DistributedDataParallel(net)
        net.register_comm_hook(None, reduced)  # the fake group's future has no result
    return net


def make_optimizer(torch, net, keys):
    impl = dict(foreach=keys["optimizer_impl"] == "foreach", fused=keys["optimizer_impl"] == "fused")
    if keys.get("optimizer") == "momentum":
        return torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, **impl)
    return torch.optim.AdamW(net.parameters(), lr=1e-4, **impl)


def steps(torch, net, ids, keys, where, watch, count=3):
    optimizer = make_optimizer(torch, net, keys)
    accum = keys.get("grad_accum", 1)
    for index in range(count):
        if index == 1:
            watch.reset()
        for micro in range(accum):
            quiet = net.no_sync() if hasattr(net, "no_sync") and micro + 1 < accum else contextlib.nullcontext()
            with quiet:
                with torch.autocast(where, torch.bfloat16, enabled=keys["precision"] == "bf16-amp"):
                    loss = net(input_ids=ids, labels=ids).loss
                (loss / accum).backward()
                del loss
        if keys.get("clip_grad", True):
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
    watch.read()


# ---- all of them ----


def rows_of(model, keys, gpu, versions, result):
    base = dict(source=f"memplan tests/oracle/gpu.py, {versions}", group="oracle-gpu", tier="A",
                model=TINY.get(model, model), setup=dict(keys, gpu=gpu))
    name = name_of(model, keys)
    if "oom" in result:
        return [dict(id=name, kind="oom", **base, measured=dict(fits=False))]
    skip = {"device_total"} if keys["gpus"] > 1 else set()
    return [dict(id=f"{name}-{metric}", kind="memory", **base, measured=dict(metric=metric, bytes=size))
            for metric, size in result.items() if metric not in skip]


def run_child(model, keys, where):
    """In a child, so that every configuration has an allocator and a context of its own."""
    environment = None
    if keys.get("allocator") == "expandable":
        import os
        environment = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        child = subprocess.run([sys.executable, __file__, out.name, "--device", where, "--one",
                                json.dumps([model, keys])], capture_output=True, text=True, env=environment)
        text = out.read()
    if child.returncode == 0:
        return json.loads(text)
    if "OutOfMemoryError" in child.stderr:
        return dict(oom=True)
    print(child.stderr[-2000:], file=sys.stderr)
    return None


def about(where, given):
    import torch
    import transformers
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    if where == "cpu":
        return given or "a100-80gb", versions + ", the tracker's figures on a CPU"
    device = torch.cuda.get_device_name()
    found = sorted((n for n in NAMES if n in device), key=len)
    if not given and not found:
        sys.exit(f"'{device}' has no name in the catalogue here: give --gpu NAME")
    return given or NAMES[found[-1]], f"{versions}, CUDA {torch.version.cuda}, {device}"


def predict(program, model, keys):
    options = [part for k, v in keys.items() for part in (f"--{k.replace('_', '-')}", str(v).lower())]
    done = subprocess.run([program, model, *options, "--json"], capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip().splitlines()[0]
    return "{:.2f} GiB".format(json.loads(done.stdout)["memory"]["peak_allocated"] / 2**30)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", nargs="?")
    for option in ("gpu", "only", "memplan", "one"):
        parser.add_argument("--" + option, default="")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args()
    if given.one:
        pathlib.Path(given.out).write_text(json.dumps(measure_one(*json.loads(given.one), given.device)))
        return
    todo = [(m, k) for m, k in (tiny() if given.device == "cpu" else setups()) if given.only in name_of(m, k)]
    if given.dry_run:
        for model, keys in todo:
            print(name_of(model, keys), json.dumps(keys), predict(given.memplan, model, keys) if given.memplan else "")
        print(len(todo), "configurations")
        return
    gpu, versions = about(given.device, given.gpu)
    with open(given.out, "w") as out:
        for model, keys in todo:
            result = run_child(model, keys, given.device)
            print(name_of(model, keys), result, flush=True)
            for row in rows_of(model, keys, gpu, versions, result) if result else ():
                out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
