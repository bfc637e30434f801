"""The same steps on a real GPU: one call measures over a hundred configurations, those the card cannot hold as such, and writes
scoring rows.

Each configuration is a process of its own, child of one that has only imported: a model of the catalogue (models/*.json,
random weights), three steps, then max_memory_allocated of the later two, memory_allocated between steps,
max_memory_reserved, and what mem_get_info says is gone.  FSDP, DDP and DeepSpeed run as rank 0 of up to 64 under PyTorch's
fake process group: shards and buffers are real, NCCL is not there, so device_total has no communicators and no row says so
for them.  A configuration that runs out of memory becomes an `oom` row.  With --traces FOLDER a few are recorded request by
request too, in the form that tests/measured/test_cuda_traces.c reads.

usage: gpu.py OUT.jsonl [--gpu NAME] [--only TEXT] [--without OLD.jsonl] [--seconds N] [--traces FOLDER] [--parallel]
              [--setups LIST.json] [--times]            on a machine with a GPU; NAME is the catalogue's (memplan gpus);
                                                        --parallel: several at once, and no device_total; --setups: not
                                                        those below, but those of the list; --times: of one GPU's steps
                                                        how long they take too, and of kernels in OUT.jsonl.kernels
       gpu.py LIST.json --draw COUNT --seed N --memplan PROGRAM --gpu NAME [--alone]
                                                        draws setups at random, by what the program predicts of them
                                                        large enough to tell and small enough to run; --alone: of one
                                                        GPU, with steps that the GPU, not its host, is the limit of
       gpu.py --dry-run [--memplan PROGRAM]             lists the setups; with the program, what it predicts
       gpu.py OUT.jsonl --device cpu                    a few tiny configurations, to exercise the code: figures are the
                                                        tracker's, there is no reserved
"""
import argparse
import contextlib
import gzip
import json
import multiprocessing
import os
import pathlib
import random
import re
import subprocess
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN_KEYS = ("memplan", "name", "source", "notes", "parameters")
NAMES = {"A100-SXM4-80GB": "a100-80gb", "A100-SXM4-40GB": "a100-40gb", "A100 80GB PCIe": "a100-pcie-80gb",
         "H100 80GB HBM3": "h100-80gb", "H100 PCIe": "h100-pcie-80gb", "H100 NVL": "h100-nvl", "H200": "h200",
         "B200": "b200", "L4": "l4", "L40S": "l40s", "A10G": "a10g", "A10": "a10", "T4": "t4", "RTX 4090": "rtx-4090",
         "RTX 3090": "rtx-3090", "RTX A6000": "rtx-a6000"}


ONE = dict(framework="hf", gpus=1, attention="flash", optimizer_impl="fused", micro_batch=1, seq_len=1024)
MANY = dict(framework="fsdp", engine="fsdp2", precision="bf16-mixed", optimizer_impl="fused", attention="flash",
            micro_batch=1, seq_len=2048)
ZERO = dict(framework="deepspeed", precision="bf16-mixed", optimizer_impl="fused", attention="flash", micro_batch=1,
            seq_len=2048, zero_rank="first")
LORA = dict(lora_rank=16, lora_targets="all-linear", lora_dtype="fp32", base_dtype="bf16", precision="bf16-amp",
            recompute="full", micro_batch=2, seq_len=2048)


def plain():
    for model, length in (("gpt2", 1024), ("pythia-410m", 2048), ("qwen2.5-0.5b", 2048), ("llama-3.2-1b", 4096),
                          ("tinyllama-1.1b", 2048), ("opt-1.3b", 2048), ("gemma-2b", 2048), ("qwen2.5-1.5b", 4096),
                          ("llama-3.2-3b", 4096)):
        yield model, dict(ONE, seq_len=length, precision="bf16")
        yield model, dict(ONE, seq_len=length, precision="bf16-amp")
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
            yield model, dict(ONE, **more)


def sharded():
    for model in ("llama-3.2-1b", "llama-2-7b", "llama-3.1-8b"):
        for gpus in (8, 64):
            yield model, dict(MANY, gpus=gpus)
            yield model, dict(MANY, gpus=gpus, recompute="full", reduce_dtype="fp32", seq_len=4096)
    yield "llama-3.2-1b", dict(MANY, gpus=8, zero=2)
    yield "llama-3.2-1b", dict(MANY, gpus=8, grad_accum=2, optimizer_impl="foreach")
    yield "llama-2-13b", dict(MANY, gpus=64, recompute="full")
    for gpus in (8, 64):
        yield "gpt2", dict(ONE, gpus=gpus, precision="bf16-amp")
        yield "llama-3.2-1b", dict(ONE, gpus=gpus, precision="bf16", recompute="full")
    for zero in (1, 2, 3):
        yield "llama-3.2-1b", dict(ZERO, gpus=8, zero=zero)
        yield "llama-3.2-1b", dict(ZERO, gpus=8, zero=zero, grad_accum=2, recompute="full", micro_batch=2)
    yield "gpt2", dict(ZERO, gpus=8, zero=2, seq_len=1024)
    for gpus in (8, 64):
        yield "llama-2-7b", dict(ZERO, gpus=gpus, zero=3, recompute="full", micro_batch=2)
    yield "llama-2-7b", dict(ZERO, gpus=64, zero=2)
    for gpus in (8, 64):
        yield "llama-3.2-1b", dict(MANY, engine="fsdp", gpus=gpus)
        yield "llama-2-7b", dict(MANY, engine="fsdp", gpus=gpus, recompute="full")


def families():
    for model, more in (("qwen3-0.6b", {}), ("smollm2-360m", {}), ("olmo-2-1b", {}), ("stablelm-2-1.6b", {}),
                        ("bloom-560m", dict(attention="eager")), ("granite-3.1-1b-a400m", {}), ("opt-350m", {}),
                        ("phi-2", {}), ("gemma-2-2b", dict(attention="eager")), ("gemma-3-1b", {}), ("falcon-rw-1b", dict(attention="sdpa")),
                        ("starcoder2-3b", {}), ("bert-base", dict(seq_len=512, micro_batch=8)),
                        ("roberta-base", dict(seq_len=512, micro_batch=8)), ("t5-base", dict(seq_len=512, micro_batch=4, attention="eager")),
                        ("vit-large-patch16-224", dict(micro_batch=16)), ("olmoe-1b-7b", dict(recompute="full"))):
        keys = dict(ONE, precision="bf16", **more)
        if model.startswith("vit"):
            del keys["seq_len"]
        yield model, keys


def adapted():
    for more in ({}, dict(base_dtype="nf4", double_quant=True), dict(base_dtype="int8"), dict(base_dtype="nf4", recompute="none",
                 micro_batch=1, double_quant=False), dict(lora_targets="q,v", lora_dropout=0.05)):
        yield "llama-3.1-8b", dict(ONE, **dict(LORA, **more))
        yield "llama-3.2-1b", dict(ONE, **dict(LORA, **more))
    for optimizer in ("adam8bit", "paged-adam8bit", "lion8bit", "adafactor", "sgd"):
        keys = dict(ONE, precision="bf16", optimizer=optimizer, seq_len=2048)
        if optimizer != "sgd":
            del keys["optimizer_impl"]
        if "8bit" in optimizer:
            keys["embedding_states"] = "8bit"  # bitsandbytes' own; the Trainer's are fp32
        yield "llama-3.2-1b", keys
    yield "llama-3.2-1b", dict(ONE, precision="bf16", compile=True, seq_len=2048)
    yield "gpt2", dict(ONE, precision="bf16-amp", compile=True, micro_batch=4)
    yield "llama-3.2-1b", dict(ONE, precision="bf16", recompute="full", seq_len=16384)
    yield "mistral-7b-v0.3", dict(ONE, precision="bf16", recompute="full", seq_len=2048)
    yield "llama-3.1-8b", dict(ONE, precision="bf16", recompute="full", seq_len=2048)
    yield "llama-2-7b", dict(ONE, precision="bf16-amp", seq_len=2048)


# What a draw chooses from, beside the models above: the longest sequence, and whether the code has SDPA.
DECODERS = {
    "gpt2-medium": 1024, "gpt2-large": 1024, "distilgpt2": 1024, "gpt-neo-1.3b": 2048, "pythia-160m": 2048,
    "pythia-1b": 2048, "pythia-1.4b": 2048, "pythia-2.8b": 2048, "opt-125m": 2048, "opt-2.7b": 2048, "bloom-1b1": 2048,
    "bloom-1b7": 2048, "qwen2-0.5b": 4096, "qwen2-1.5b": 4096, "qwen2.5-3b": 4096, "qwen3-1.7b": 4096, "qwen3-4b": 4096,
    "smollm-135m": 2048, "smollm-1.7b": 2048, "smollm2-1.7b": 4096, "smollm3-3b": 4096, "open-llama-3b": 2048, "gemma-2-2b": 4096,
    "gemma-3-1b": 4096, "phi-3-mini-4k": 4096, "phi-4-mini": 4096, "olmo-1b": 2048, "olmo-2-1b": 4096,
    "stablelm-3b-4e1t": 4096, "starcoderbase-1b": 4096, "starcoderbase-3b": 4096, "starcoder2-3b": 4096, "ernie-4.5-0.3b": 4096,
    "olmoe-1b-7b": 4096, "granite-3.1-1b-a400m": 4096}
LARGE = {"mistral-7b-v0.3": 4096, "qwen2.5-7b": 4096, "qwen3-8b": 4096, "yi-6b": 4096, "gemma-7b": 4096, "pythia-6.9b": 2048,
         "opt-6.7b": 2048, "falcon-7b": 2048, "gpt-j-6b": 2048, "internlm3-8b": 4096, "olmo-2-7b": 4096, "starcoder2-7b": 4096,
         "llama-2-13b": 4096, "phi-4": 4096, "qwen2.5-14b": 4096}
OTHERS = {"roberta-large": 512, "xlm-roberta-base": 512, "bert-large": 512, "distilbert-base-uncased": 512, "bart-large": 1024,
          "t5-small": 512, "flan-t5-large": 512, "mt5-large": 512, "vit-base-patch16-224-in21k": 0, "vit-huge-patch14-224-in21k": 0}
WRITTEN_OUT = ("bloom", "gpt-neo-", "gemma-2-", "t5", "flan-t5", "mt5", "gpt-j")  # no SDPA, or none that is flash
LINEAR = {"mistral-7b-v0.3", "qwen2.5-7b", "qwen3-8b", "yi-6b", "qwen3-4b", "qwen2.5-3b", "smollm2-1.7b", "internlm3-8b", "llama-2-13b",
          "qwen2.5-14b"}


def draw_one(rng):
    engine = rng.choices(("none", "fsdp2", "fsdp", "ddp", "deepspeed", "adapters"), (50, 14, 7, 5, 14, 10))[0]
    lengths = {"none": DECODERS | OTHERS, "adapters": {k: v for k, v in (DECODERS | LARGE).items() if k in LINEAR},
               "ddp": DECODERS}.get(engine, DECODERS | LARGE)
    model = rng.choice(sorted(lengths))
    keys = dict(ONE, precision=rng.choice(("bf16", "bf16", "bf16-amp", "bf16-amp", "fp32")), micro_batch=rng.choice((1, 2, 3, 4, 8, 16)),
                optimizer_impl=rng.choice(("fused", "foreach", "loop")))
    lengths = [n for n in (128, 256, 500, 512, 1000, 1024, 2048, 3000, 4096) if n <= lengths[model]]
    keys["seq_len"] = rng.choice(lengths[-4:] or [0])
    if not keys["seq_len"]:
        del keys["seq_len"]
    if model.startswith(WRITTEN_OUT) or rng.random() < 0.1:
        keys["attention"] = "eager"
    elif keys["precision"] == "fp32" or model.startswith("falcon"):
        keys["attention"] = "sdpa"
    if rng.random() < 0.4:
        keys["recompute"] = "full"
        if engine == "none" and rng.random() < 0.3:
            keys["recompute_reentrant"] = True
    keys["grad_accum"] = rng.choice((1, 1, 2, 3))
    if engine == "none":
        draw_alone(rng, keys)
    elif engine == "adapters":
        keys.update(LORA, lora_rank=rng.choice((8, 16, 64)), lora_dtype=rng.choice(("fp32", "bf16")), base_dtype=rng.choice(("bf16", "nf4", "int8")),
                    attention="flash", micro_batch=rng.choice((1, 2, 4)), seq_len=rng.choice((512, 1024, 2048)),
                    lora_targets=rng.choice(("all-linear", "q,v", "q,k,v,o")), lora_dropout=rng.choice((0.0, 0.1)))
    else:
        keys.update(MANY if engine != "deepspeed" else ZERO, gpus=rng.choice((2, 4, 8, 16, 32, 64)), seq_len=keys["seq_len"],
                    micro_batch=rng.choice((1, 2, 4)), optimizer_impl=keys["optimizer_impl"], attention=keys["attention"] if
                    keys["attention"] == "eager" or model.startswith("falcon") else "flash")
        keys.pop("recompute_reentrant", None)
        if engine == "deepspeed":
            keys.update(zero=rng.choice((1, 2, 3)), optimizer_impl="fused")
        elif engine == "ddp":
            keys.update(framework="hf", precision=rng.choice(("bf16", "bf16-amp")))
            del keys["engine"]
        else:
            keys.update(engine=engine, **(dict(reduce_dtype="fp32") if engine == "fsdp2" and rng.random() < 0.5 else {}))
    return model, {k: v for k, v in keys.items() if (k, v) not in (("grad_accum", 1), ("lora_dropout", 0.0))}


def draw_alone(rng, keys):
    if rng.random() < 0.2:
        keys["clip_grad"] = False
    if rng.random() < 0.15:
        keys["allocator"] = "expandable"
    optimizer = rng.choices(("adamw", "sgd", "momentum", "adafactor", "adam8bit", "lion8bit", "paged-adam8bit"), (60, 5, 10, 10, 5, 5, 5))[0]
    if optimizer != "adamw":
        keys["optimizer"] = optimizer
    if optimizer == "sgd" and keys["optimizer_impl"] == "loop":
        keys["optimizer_impl"] = "foreach"
    if "8bit" in optimizer:
        keys["embedding_states"] = "8bit"  # as adapted() below
    if "8bit" in optimizer or optimizer == "adafactor":
        del keys["optimizer_impl"]


PREDICTED = ("peak_allocated", "steady_allocated", "peak_reserved")


def draw(count, seed, program, gpu, alone):
    """[{model, setup, predicted}]: to need 1.5 to 60 GiB of the card; alone: of one GPU, 0.1 to 1.5 s a step."""
    rng, found, names = random.Random(seed), [], set()
    while len(found) < count:
        model, keys = draw_one(rng)
        if alone and keys["gpus"] > 1:
            continue
        said, times = asked(program, model, setup_of(keys, gpu), "memory", "compute")
        if isinstance(said, str):
            print(name_of(model, keys), said)
        elif 1.5 < said["peak_reserved"] / 2**30 < 60 and name_of(model, keys) not in names \
                and (not alone or 0.1 < times["step_time_s"] < 1.5):
            names.add(name_of(model, keys))
            more = dict(step_time_s=times["step_time_s"]) if alone else {}
            found.append(dict(model=model, setup=keys, predicted={k: said[k] for k in PREDICTED} | more))
    return found


def setups():
    """(model, keys of memplan); the rest is the framework's default."""
    for some in (plain, sharded, adapted, families):
        yield from some()


def traced():
    """Of one stream: the form of a trace has no other."""
    yield "gpt2", dict(ONE, precision="bf16-amp")
    yield "llama-3.2-1b", dict(ONE, precision="bf16", recompute="full", seq_len=2048)
    yield "llama-3.2-1b", dict(ONE, precision="bf16-amp", optimizer_impl="foreach")
    yield "llama-3.2-1b", dict(ONE, **dict(LORA, base_dtype="nf4"))
    yield "pythia-410m", dict(ONE, precision="bf16", attention="eager", micro_batch=4)
    yield "bert-base", dict(ONE, precision="bf16-amp", seq_len=512, micro_batch=8)


def tiny():
    seen = []
    for model, keys in setups():
        small = "tiny-llama" if "llama" in model else "tiny-gpt2", dict(keys, seq_len=32, attention="eager")
        kind = [small[0]] + [keys.get(k) for k in ("precision", "engine", "recompute", "grad_accum", "zero", "reduce_dtype")]
        plain = not any(k in keys for k in ("base_dtype", "optimizer", "compile")) and keys["framework"] != "deepspeed" \
            and keys.get("engine") != "fsdp"
        if keys["precision"] != "bf16-amp" and plain and kind not in seen and len(seen) < 12:
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


SHORT = dict(ONE, lora_rank=16, lora_targets="all-linear", lora_dtype="fp32", embedding_states="8bit", engine="fsdp2", zero_rank="first")


def name_of(model, keys):
    parts = [f"{k}={v}" if isinstance(v, (int, float)) else v for k, v in keys.items() if SHORT.get(k) != v]
    return "-".join(["gpu", model, *(["lora"] if "lora_rank" in keys else []), *parts]).replace("_", "").replace("=", "")


# ---- one configuration, in a process of its own ----

AUTO = dict(bert="AutoModelForMaskedLM", roberta="AutoModelForMaskedLM", distilbert="AutoModelForMaskedLM",
            t5="AutoModelForSeq2SeqLM", mt5="AutoModelForSeq2SeqLM", bart="AutoModelForSeq2SeqLM",
            vit="AutoModelForImageClassification") | {"xlm-roberta": "AutoModelForMaskedLM"}


def model_of(torch, model, keys):
    """On the meta device, with adapters, checkpoints last: they go around layers that are wrapped already."""
    import transformers
    stored = torch.bfloat16 if keys["precision"] == "bf16" or "base_dtype" in keys else torch.float32
    config = transformers.AutoConfig.for_model(**config_of(model))
    config.use_cache = False
    name = "eager" if keys["attention"] == "eager" else "sdpa"
    kind = getattr(transformers, AUTO.get(config.model_type, "AutoModelForCausalLM"))
    if config.model_type in ("t5", "mt5"):
        config.decoder_start_token_id = config.pad_token_id = 0
    with torch.device("meta"):
        net = kind.from_config(config, dtype=stored, attn_implementation=name)
        if "base_dtype" in keys:
            import adapters
            net = adapters.wrap(net, setting_of(keys))
            if keys["lora_dtype"] == "bf16":  # PEFT leaves what is on the meta device, or over 4 and 8 bits, in fp32
                for p in net.parameters():
                    p.data = p.data.bfloat16() if p.requires_grad else p.data
    if keys.get("recompute") == "full":
        net.gradient_checkpointing_enable(dict(use_reentrant=keys.get("recompute_reentrant", False)))
    return net.train(), config


def setting_of(keys):
    """In adapters.py's words."""
    targets = keys["lora_targets"]
    base = keys["base_dtype"] + ("-double" if keys.get("double_quant") else "")
    return dict(rank=keys["lora_rank"], targets=targets if targets == "all-linear" else [t + "_proj" for t in targets.split(",")],
                dropout=keys.get("lora_dropout", 0.0), dtype=keys["lora_dtype"], base=base)


def inputs_of(torch, config, keys, where):
    batch = keys["micro_batch"]
    if config.model_type == "vit":
        return dict(pixel_values=torch.zeros(batch, 3, config.image_size, config.image_size, device=where,
                                             dtype=torch.bfloat16 if keys["precision"] == "bf16" else torch.float32),
                    labels=torch.zeros(batch, dtype=torch.long, device=where))
    ids = torch.randint(0, config.vocab_size, (batch, keys["seq_len"]), device=where)
    return dict(input_ids=ids, labels=ids)


def measure_one(model, keys, where, trace=None, times=False):
    if where == "cpu":
        import step  # noqa: F401  (its tracker; before torch)
    import torch
    net, config = model_of(torch, model, keys)
    watch = Watch(torch, where)
    with watch.following():
        rank = wrap(torch, net, keys, where)
        if where != "cpu" and keys["framework"] != "deepspeed":
            torch.cuda.empty_cache()  # of weights that were whole before they were cut or packed, of tied ones that were two
        if trace:
            torch.cuda.memory._record_memory_history(context=None, max_entries=10**7)
            start = torch.cuda.memory._snapshot()
        inputs = inputs_of(torch, config, keys, where)
        one = steps(torch, rank, inputs, keys, where, watch)
        if times and one and where != "cpu":
            watch.result.update(time_of(torch, one))
        if trace:
            write_trace(start, torch.cuda.memory._snapshot(), trace)
    return watch.result


def write_trace(start, end, path):
    """S, B: segments and blocks there at the start; G, R: of cudaMalloc and cudaFree; A, F: requests and their ends."""
    base = min(s["address"] for s in [*start["segments"], *end["segments"]])
    with gzip.open(path, "wt") as out:
        for s in start["segments"]:
            out.write(f"S {s['address'] - base:x} {s['total_size']} {s['segment_type']}\n")
            at = s["address"]
            for block in s["blocks"]:
                if block["state"] == "active_allocated":
                    out.write(f"B {at - base:x} {block['size']}\n")
                at += block["size"]
        seen = len([e for d in start["device_traces"] for e in d])
        letters = dict(alloc="A", free_completed="F", segment_alloc="G", segment_free="R")
        for e in [e for d in end["device_traces"] for e in d][seen:]:
            if e["action"] in letters:
                size = "" if e["action"] == "free_completed" else f" {e['size']}"
                out.write(f"{letters[e['action']]} {e['addr'] - base:x}{size}\n")
        reserved = sum(s["total_size"] for s in end["segments"])
        allocated = sum(s["allocated_size"] for s in end["segments"])
        out.write(f"# end reserved {reserved} allocated {allocated}\n")


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


def fill(torch, net, where):
    net.to_empty(device=where)
    if hasattr(net, "tie_weights"):
        net.tie_weights()
    with torch.no_grad():
        for t in [*net.parameters(), *net.buffers()]:
            if t.is_floating_point():  # products of equal numbers draw less power, and run faster
                local = t.to_local() if hasattr(t, "to_local") else t
                local.normal_(0, 0.02) if t.dim() > 1 else local.fill_(0.01)
            else:
                t.zero_()


def fill_quantised(torch, net, where):
    """Frozen matrices as bitsandbytes packs them, one by one; the rest as it is."""
    import bitsandbytes
    for module in net.modules():
        if isinstance(module, (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)):
            shape, old = module.weight.shape, module.weight
            full = torch.empty(shape, dtype=torch.bfloat16, device=where).normal_(0, 0.02)
            if isinstance(module, bitsandbytes.nn.Linear4bit):
                made = bitsandbytes.nn.Params4bit(full, requires_grad=False, quant_type=old.quant_type,
                                                  compress_statistics=old.compress_statistics, module=module)
            else:
                made = bitsandbytes.nn.Int8Params(full.half(), requires_grad=False, has_fp16_weights=False)
            module.weight = made.to(where)
        for name, t in [*module._parameters.items()]:
            if t is not None and t.device.type == "meta":
                made = torch.empty_like(t, device=where)
                made.normal_(0, 0.02) if t.dim() > 1 else made.fill_(0.01)  # as fill() does, and for its reason
                module._parameters[name] = torch.nn.Parameter(made, t.requires_grad)
        for name, t in [*module._buffers.items()]:
            if t is not None and t.device.type == "meta":
                module._buffers[name] = torch.ones_like(t, device=where)
    net.tie_weights()  # a tied table and head have become two


def join(keys):
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(keys["gpus"]), MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=keys["gpus"])


def wrap(torch, net, keys, where):
    """The model as the engine holds it, with weights of this rank only."""
    if keys["gpus"] > 1 or keys["framework"] == "deepspeed":
        join(keys)
    engine = keys.get("engine", keys["framework"])
    layers = next((m for m in net.modules() if isinstance(m, torch.nn.ModuleList) and len(m)), None)
    if engine == "fsdp2":
        fully(torch, net, layers, keys, where)
    if keys.get("base_dtype", "bf16") in ("nf4", "fp4", "int8"):
        fill_quantised(torch, net, where)
    else:
        fill(torch, net, where)
    if engine == "fsdp":
        return fsdp1(torch, net, layers)
    if engine == "deepspeed":
        if where != "cpu":
            torch.cuda.empty_cache()  # of tied weights that were two; what its start leaves stays
        return deepspeed_engine(torch, net, keys)
    if keys["gpus"] > 1 and engine != "fsdp2":
        def reduced(_, bucket):
            future = torch.futures.Future()
            future.set_result(bucket.buffer().div_(keys["gpus"]))
            return future
        net = torch.nn.parallel.DistributedDataParallel(net)
        net.register_comm_hook(None, reduced)  # the fake group's future has no result
    return torch.compile(net) if keys.get("compile") else net


def fully(torch, net, layers, keys, where):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    reduce = dict(reduce_dtype=torch.float32) if keys.get("reduce_dtype") == "fp32" else {}
    more = dict(mesh=init_device_mesh(where, (keys["gpus"],)), reshard_after_forward=keys.get("zero", 3) == 3,
                mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, **reduce))
    for layer in layers:
        fully_shard(layer, **more)
    if more["reshard_after_forward"]:
        del more["reshard_after_forward"]  # the root keeps its parameters, as by default
    fully_shard(net, **more)


def fsdp1(torch, net, layers):
    import functools
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={type(layers[0])})
    mixed = MixedPrecision(*[torch.bfloat16] * 3)  # as Accelerate's bf16
    return FullyShardedDataParallel(net, auto_wrap_policy=policy, mixed_precision=mixed, use_orig_params=True,
                                    device_id=torch.cuda.current_device())


def deepspeed_engine(torch, net, keys):
    import deepspeed
    config = dict(train_micro_batch_size_per_gpu=keys["micro_batch"], gradient_accumulation_steps=keys.get("grad_accum", 1),
                  bf16=dict(enabled=True), gradient_clipping=1.0, zero_allow_untested_optimizer=True,
                  zero_optimization=dict(stage=keys["zero"]))
    optimizer = make_optimizer(torch, net, keys)
    return deepspeed.initialize(model=net, optimizer=optimizer, config=config, dist_init_required=False)[0]


def make_optimizer(torch, net, keys):
    trained = [p for p in net.parameters() if p.requires_grad]
    name = keys.get("optimizer", "adamw")
    if "8bit" in name:
        import bitsandbytes.optim as of
        return {"adam8bit": of.AdamW8bit, "paged-adam8bit": of.PagedAdamW8bit, "lion8bit": of.Lion8bit}[name](trained, lr=1e-4)
    if name == "adafactor":  # as the Trainer makes it
        import transformers
        return transformers.optimization.Adafactor(trained, lr=1e-4, scale_parameter=False, relative_step=False)
    impl = dict(foreach=keys["optimizer_impl"] == "foreach", fused=keys["optimizer_impl"] == "fused")
    if name in ("momentum", "sgd"):
        return torch.optim.SGD(trained, lr=1e-4, momentum=0.9 if name == "momentum" else 0.0, **impl)
    return torch.optim.AdamW(trained, lr=1e-4, **impl)


def deepspeed_steps(engine, inputs, keys, watch, count):
    for index in range(count):
        if index == 1:
            watch.reset()
        for _ in range(keys.get("grad_accum", 1)):
            loss = engine(**inputs).loss
            engine.backward(loss)
            del loss
            engine.step()
    watch.read()


def steps(torch, net, inputs, keys, where, watch, count=3):
    """What does one more, if not under an engine with steps of its own."""
    if keys["framework"] == "deepspeed":
        deepspeed_steps(net, inputs, keys, watch, count)
        return None
    optimizer = make_optimizer(torch, net, keys)
    accum = keys.get("grad_accum", 1)

    def one():
        for micro in range(accum):
            quiet = net.no_sync() if hasattr(net, "no_sync") and micro + 1 < accum else contextlib.nullcontext()
            with quiet:
                with torch.autocast(where, torch.bfloat16, enabled=keys["precision"] == "bf16-amp"):
                    loss = net(**inputs).loss
                (loss / accum).backward()
                del loss
        if keys.get("clip_grad", True):
            if keys.get("engine") == "fsdp":
                net.clip_grad_norm_(1.0)
            else:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()

    for index in range(count):
        if index == 1:
            watch.reset()
        one()
    watch.read()
    return one


def time_of(torch, one, least=1.5, most=12):
    """Seconds a step, back to back, the host at most four ahead: the median; and of its kernels, by the profiler."""
    from torch.profiler import ProfilerActivity, profile
    one()
    marks, start = [], time.monotonic()
    while len(marks) < 9 or time.monotonic() - start < least:
        if len(marks) > 3 and time.monotonic() - start > most:
            break
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        one()
        if len(marks) % 4 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    whole = sorted(a.elapsed_time(b) * 1e-3 for a, b in zip(marks, marks[1:]))
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        one()
        torch.cuda.synchronize()
    events = [e for e in prof.profiler.kineto_results.events() if "CUDA" in str(e.device_type())
              and not e.name().startswith("Optimizer.")]
    names = {}
    for e in events:
        count, spent = names.get(e.name()[:160], (0, 0.0))
        names[e.name()[:160]] = count + 1, round(spent + e.duration_ns() * 1e-9, 7)
    return dict(step_time_s=round(whole[len(whole) // 2], 6), kernels_s=round(sum(e.duration_ns() for e in events) * 1e-9, 6),
                kernels=len(events), names=names)


# ---- all of them ----


def setup_of(keys, gpu):
    """With what the code below does and a draw does not say."""
    more = dict(use_orig_params=True) if keys.get("engine") == "fsdp" else {}
    if keys.get("engine") == "fsdp" and keys.get("grad_accum", 1) > 1:
        more["grad_sync"] = "last"
    if keys.get("base_dtype", "bf16") != "bf16":
        more["kbit_cast"] = "all"
    return dict(keys, gpu=gpu, **more)


METRICS = (*PREDICTED, "device_total")


def rows_of(model, keys, gpu, versions, result):
    base = dict(source=f"memplan tests/oracle/gpu.py, {versions}", group="oracle-gpu", tier="A",
                model=TINY.get(model, model), setup=setup_of(keys, gpu))
    name = name_of(model, keys)
    if "oom" in result:
        return [dict(id=name, kind="oom", **base, measured=dict(fits=False))]
    skip = {"device_total"} if keys["gpus"] > 1 else set()
    found = [dict(id=f"{name}-{metric}", kind="memory", **base, measured=dict(metric=metric, bytes=size))
             for metric, size in result.items() if metric not in skip and metric in METRICS]
    if "step_time_s" in result:
        found.append(dict(id=f"{name}-step_time", kind="throughput", **dict(base, group="oracle-gpu-time"),
                          measured=dict(metric="step_time_s", value=result["step_time_s"]),
                          notes=f"kernels, {result['kernels']}, {result['kernels_s']:.4g} s of it"))
    return found


def child(pipe, model, keys, where, trace, times):
    try:
        if keys.get("allocator") == "expandable":
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # read by the allocator's first use
        pipe.send(measure_one(model, keys, where, trace, times))
    except Exception as error:
        text = traceback.format_exc()
        pipe.send(dict(oom=True) if "OutOfMemoryError" in text else dict(error=f"{error}", where=text[-1500:]))


class Child:
    """A process for every configuration, so that it has an allocator and a context of its own; forked: it has imported."""

    def __init__(self, model, keys, where, trace=None, times=False):
        context = multiprocessing.get_context("fork")
        self.model, self.keys, self.start = model, keys, time.monotonic()
        self.pipe, theirs = context.Pipe(False)
        self.process = context.Process(target=child, args=(theirs, model, keys, where, trace, times))
        self.process.start()
        theirs.close()

    def result(self, seconds):
        """None while it has none."""
        try:
            found = self.pipe.recv() if self.pipe.poll(seconds) else None
        except EOFError:
            found = dict(error="the process died")
        if found is None and time.monotonic() - self.start < 150:
            return None
        found = found or dict(error="150 s are over")
        if "error" in found:
            self.process.kill()
        self.process.join()
        return found


def room_of(model, keys, predicted):
    """About what share of an 80 GB card a configuration may need: several run at once, and none may press another."""
    if predicted:  # and a fifth more, for what it does not know
        return min(1.0, (predicted["peak_reserved"] * 1.2 + 2**30) / 80e9)
    size = re.search(r"([0-9.]+)b(-|$)", model)
    if not size or float(size[1]) < 2.5:
        return 0.25
    return 0.5 if keys["gpus"] > 1 or "base_dtype" in keys or float(size[1]) < 3.5 else 1.0


def results(todo, given):
    """(model, keys, result), several at a time where no row is of the whole device's memory."""
    end, running, todo, done, failed = time.monotonic() + given.seconds, [], list(todo), 0, 0
    while todo or running:
        if failed > 5 and failed == done:
            sys.exit("nothing runs")
        free = 1.0 - sum(c.room for c in running)
        fits = next((t for t in todo if room_of(*t) <= free and (given.parallel or not running)), None)
        if fits and time.monotonic() < end and len(running) < os.cpu_count():
            todo.remove(fits)
            running.append(Child(*fits[:2], given.device, None, given.times and fits[1]["gpus"] == 1))
            running[-1].room = room_of(*fits)
            continue
        if not running:
            print("no time for", *[name_of(*t[:2]) for t in todo], sep="\n  ")
            return
        for c in list(running):
            found = c.result(0.05)
            if found:
                running.remove(c)
                done, failed = done + 1, failed + ("error" in found)
                if given.parallel:
                    found.pop("device_total", None)
                print(name_of(c.model, c.keys), found.get("peak_allocated", found), f"{time.monotonic() - c.start:.1f} s", flush=True)
                yield c.model, c.keys, found


def about(where, given):
    import torch
    import transformers
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    if where == "cpu":
        return given or "a100-80gb", versions + ", the tracker's figures on a CPU"
    names = multiprocessing.get_context("fork").Pool(1)  # a context here would forbid to fork
    device = names.apply(torch.cuda.get_device_name)
    names.terminate()
    found = sorted((n for n in NAMES if n in device), key=len)
    if not given and not found:
        sys.exit(f"'{device}' has no name in the catalogue here: give --gpu NAME")
    return given or NAMES[found[-1]], f"{versions}, CUDA {torch.version.cuda}, {device}"


def asked(program, model, keys, *parts):
    """What the program predicts, a part each, or twice what it says is wrong."""
    options = [part for k, v in keys.items() for part in (f"--{k.replace('_', '-')}", str(v).lower())]
    done = subprocess.run([program, model, *options, "--json"], capture_output=True, text=True)
    if done.stdout:
        said = json.loads(done.stdout)
        return [said[p] for p in parts]
    return [done.stderr.strip().splitlines()[0]] * len(parts)


def predict(program, model, keys):
    said, = asked(program, model, keys, "memory")
    return said if isinstance(said, str) else "{:.2f} GiB".format(said["peak_allocated"] / 2**30)


def record_traces(folder):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for model, keys in traced():
        path = pathlib.Path(folder) / (name_of(model, keys).removeprefix("gpu-").replace(".", "p") + ".txt.gz")
        print(path.name, Child(model, keys, "cuda", str(path)).result(150), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", nargs="?")
    for option in ("gpu", "only", "memplan", "traces", "without", "setups"):
        parser.add_argument("--" + option, default="")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--draw", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dry-run", action="store_true")
    for flag in ("parallel", "times", "alone"):
        parser.add_argument("--" + flag, action="store_true")
    given = parser.parse_args()
    if given.draw:
        found = draw(given.draw, given.seed, given.memplan, given.gpu, given.alone)
        pathlib.Path(given.out).write_text("[\n" + ",\n".join(json.dumps(f) for f in found) + "\n]\n")
        return
    drawn = json.loads(pathlib.Path(given.setups).read_text()) if given.setups else []
    chosen = [(f["model"], f["setup"], f["predicted"]) for f in drawn] or [(*s, None) for s in setups()]
    there = pathlib.Path(given.without).read_text() if given.without else ""
    todo = [(m, k, p) for m, k, p in ([(*s, None) for s in tiny()] if given.device == "cpu" else chosen)
            if given.only in name_of(m, k) and f'"{name_of(m, k)}-peak_allocated"' not in there]
    if given.dry_run:
        for model, keys, _ in todo:
            print(name_of(model, keys), json.dumps(keys), predict(given.memplan, model, keys) if given.memplan else "")
        print(len(todo), "configurations")
        return
    gpu, versions = about(given.device, given.gpu)
    with open(given.out, "w") as out:
        for model, keys, result in results(todo, given):
            for row in [] if "error" in result else rows_of(model, keys, gpu, versions, result):
                out.write(json.dumps(row) + "\n")
            out.flush()
            if "names" in result:  # kernels of one step: how many, seconds
                with open(given.out + ".kernels", "a") as kernels:
                    kernels.write(json.dumps(dict(id=name_of(model, keys), kernels=result["names"])) + "\n")
    if given.traces:
        record_traces(given.traces)


if __name__ == "__main__":
    main()
