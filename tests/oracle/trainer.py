"""What transformers' Trainer, and FSDP 1 as accelerate wraps it, take of a real GPU: adapters over Mistral 7B, reentrant checkpoints
around the layers and the loss over shifted fp32 logits, as transformers before 4.53 had both.

FSDP runs as rank 0 of two under PyTorch's fake process group.  Written beside the figures: the allocator's segments by stream,
of these and of runs of gpu.py, which says what starting DDP and gathering and reducing under FSDP 2 leave reserved.

usage: trainer.py FOLDER [--cpu]    writes FOLDER/figures.jsonl, one run a line, each in a process of its own; --cpu: tiny, no figures
"""
import collections
import functools
import json
import os
import pathlib
import subprocess
import sys

MISTRAL = dict(model_type="mistral", hidden_size=4096, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
               intermediate_size=14336, vocab_size=32000, num_hidden_layers=32, max_position_embeddings=4096,
               sliding_window=None, tie_word_embeddings=False)
SMALL = dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=128, vocab_size=512,
             num_hidden_layers=3)
CPU = "--cpu" in sys.argv
SEQ = 32 if CPU else 4096
RUNS = {
    "trainer-b4": dict(how="trainer", batch=4),
    "fsdp-b2": dict(how="fsdp", batch=2),
    "fsdp-b4": dict(how="fsdp", batch=4),
    "fsdp2-llama-3.2-1b": dict(how="gpu", model="llama-3.2-1b", engine="fsdp2"),
    "ddp-llama-3.2-1b": dict(how="gpu", model="llama-3.2-1b", engine="ddp", precision="bf16", recompute="full"),
    "ddp-gpt2": dict(how="gpu", model="gpt2", engine="ddp", precision="bf16-amp"),
}


def old_loss(logits, labels, vocab_size, num_items_in_batch=None, ignore_index=-100, **_):
    """transformers 4.48's ForCausalLMLoss."""
    import torch
    logits = logits.float()
    shift_logits = logits[..., :-1, :].contiguous().view(-1, vocab_size)
    return torch.nn.functional.cross_entropy(shift_logits, labels[..., 1:].contiguous().view(-1), ignore_index=ignore_index)


def around(torch, layer):
    """A reentrant checkpoint around a layer, or what FSDP made of it."""
    from torch.utils.checkpoint import checkpoint

    class Around(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, hidden, **more):
            return checkpoint(functools.partial(self.layer.__call__, **more), hidden, use_reentrant=True)

    return Around()


def model_of(torch, where):
    import peft
    import transformers
    config = transformers.AutoConfig.for_model(**dict(MISTRAL, **(SMALL if CPU else {})))
    config.use_cache = False
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.to_empty(device=where)
    model.loss_function = old_loss
    for p in model.parameters():
        p.data.fill_(0.01)
    model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=16, lora_dropout=0.1, task_type="CAUSAL_LM",
                                                       target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
    model.enable_input_require_grads()
    return model.train()


def fsdp(torch, model):
    import peft
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = type(model.base_model.model.model.layers[0]).__name__
    return FullyShardedDataParallel(
        model, auto_wrap_policy=peft.utils.other.fsdp_auto_wrap_policy(model), use_orig_params=True,
        sync_module_states=not CPU, device_id=torch.device("cpu") if CPU else torch.device("cuda", 0),
        mixed_precision=MixedPrecision(*[torch.bfloat16] * 3))


def checkpoints(torch, model):
    layers = next(m for name, m in model.named_modules() if name.endswith("layers"))
    for i in range(len(layers)):
        layers[i] = around(torch, layers[i])


def one_step(torch, model, ids):
    with torch.autocast("cpu" if CPU else "cuda", torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()  # gone with this function: its graph would hold the embedding's output


def loop(torch, model, batch):
    ids = torch.randint(0, 500, (batch, SEQ), device="cpu" if CPU else "cuda")
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, foreach=True)
    for _ in range(4):
        one_step(torch, model, ids)
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()


def trainer(torch, model, batch, out):
    import transformers

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, _):
            ids = torch.randint(0, 500, (SEQ,))
            return dict(input_ids=ids, labels=ids, attention_mask=torch.ones_like(ids))

    args = transformers.TrainingArguments(
        output_dir=str(out / "trainer"), per_device_train_batch_size=batch, max_steps=4, optim="adamw_torch", save_strategy="no",
        report_to=[], skip_memory_metrics=False, remove_unused_columns=False, use_cpu=CPU, disable_tqdm=True)
    transformers.Trainer(model=model, args=args, train_dataset=Data()).train()


def of_gpu(torch, run):
    import gpu
    more = {k: v for k, v in run.items() if k not in ("how", "model", "engine")}
    keys = dict(gpu.MANY, gpus=8) if run["engine"] == "fsdp2" else dict(gpu.ONE, gpus=8, **more)
    gpu.measure_one(run["model"], keys, "cuda")


def figures(torch):
    if CPU:
        return {}
    torch.cuda.synchronize()
    segments = collections.Counter()
    for s in torch.cuda.memory._snapshot()["segments"]:
        segments[f"stream {s['stream'] % 1000}, {s['total_size'] >> 20} MiB"] += 1
    return dict(peak_allocated=torch.cuda.max_memory_allocated(), peak_reserved=torch.cuda.max_memory_reserved(),
                segments=segments)


def one(name, out):
    import torch
    run = RUNS[name]
    if run["how"] == "gpu":
        of_gpu(torch, run)
    else:
        model = model_of(torch, "cpu" if CPU or run["how"] == "fsdp" else "cuda")
        model = fsdp(torch, model) if run["how"] == "fsdp" else model
        checkpoints(torch, model)
        if run["how"] == "fsdp":
            loop(torch, model, run["batch"])
        else:
            trainer(torch, model, run["batch"], out)
    with open(out / "figures.jsonl", "a") as f:
        f.write(json.dumps(dict(name=name, torch=torch.__version__, **figures(torch))) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    if "--one" in sys.argv:
        one(sys.argv[sys.argv.index("--one") + 1], out)
        return
    for name, run in RUNS.items():
        if not (CPU and run["how"] == "gpu"):
            subprocess.run([sys.executable, __file__, str(out), "--one", name, *(["--cpu"] if CPU else [])], check=True)


if __name__ == "__main__":
    main()
