"""Writes tests/golden/oracle/{whisper,dit,dit-diffusers}-<dtype>-<attention>-<dropout>.json: a step over spectra, over latents.

usage: media.py FOLDER [name ...]        needs diffusers 0.42.1

The original DiT is written out here as its layers compute, with timm's Attention and Mlp; its repository does not import
beside this torch.  The loss of both is the mean square of the prediction's error.
"""
import json
import pathlib
import sys

import device  # noqa: F401
import torch
import torch.nn as nn
import torch.nn.functional as F
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

import attention
import families
import measure
import saved
from tracker import Tracker

B, TARGET = 3, 24
WHISPER = dict(model_type="whisper", d_model=96, encoder_layers=3, decoder_layers=2, encoder_attention_heads=6,
               decoder_attention_heads=4, encoder_ffn_dim=208, decoder_ffn_dim=176, vocab_size=1234, num_mel_bins=20,
               max_source_positions=40, max_target_positions=48, dropout=0.1, attention_dropout=0.1, activation_dropout=0.1)
DIFFUSERS = dict(_class_name="DiTTransformer2DModel", num_attention_heads=6, attention_head_dim=16, in_channels=4,
                 out_channels=8, num_layers=3, sample_size=16, patch_size=2, num_embeds_ada_norm=10, dropout=0.1)
DIT = dict(model_type="dit", hidden_size=96, depth=3, num_heads=6, input_size=16, patch_size=2, in_channels=4, mlp_ratio=4,
           num_classes=10)
NAMES = {"whisper": (WHISPER, ("eager", "sdpa", "flash")), "dit-diffusers": (DIFFUSERS, ("eager", "sdpa")),
         "dit": (DIT, ("eager", "sdpa"))}


def scaled(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Layer(nn.Module):
    def __init__(self, h, heads, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = (nn.LayerNorm(h, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.qkv, self.proj = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.fc1, self.fc2 = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(h, 6 * h))

    def attend(self, x):
        b, n, h = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            x = F.scaled_dot_product_attention(q, k, v)
        else:
            q = q * (h // self.heads) ** -0.5
            x = (q @ k.transpose(-2, -1)).softmax(dim=-1) @ v
        return self.proj(x.transpose(1, 2).reshape(b, n, h))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attend(scaled(self.norm1(x), shift1, scale1))
        y = self.fc2(F.gelu(self.fc1(scaled(self.norm2(x), shift2, scale2)), approximate="tanh"))
        return x + gate2.unsqueeze(1) * y


class DiT(nn.Module):
    def __init__(self, fused):
        super().__init__()
        h, p, c, side = DIT["hidden_size"], DIT["patch_size"], DIT["in_channels"], DIT["input_size"] // DIT["patch_size"]
        self.patch, self.channels, self.classes = p, 2 * c, DIT["num_classes"]
        self.patches = nn.Conv2d(c, h, p, p)
        self.positions = nn.Parameter(torch.zeros(1, side * side, h), requires_grad=False)
        self.times = nn.Sequential(nn.Linear(256, h), nn.SiLU(), nn.Linear(h, h))
        self.labels = nn.Embedding(self.classes + 1, h)
        self.layers = nn.ModuleList(Layer(h, DIT["num_heads"], fused) for _ in range(DIT["depth"]))
        self.norm = nn.LayerNorm(h, elementwise_affine=False, eps=1e-6)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(h, 2 * h))
        self.out = nn.Linear(h, p * p * self.channels)

    def forward(self, x, t, y):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        angles = t[:, None].float() * torch.arange(128, dtype=torch.float32, device=t.device)[None]
        times = self.times(torch.cat([angles.cos(), angles.sin()], dim=-1).to(self.positions.dtype))
        y = torch.where(torch.rand(y.shape[0], device=y.device) < 0.1, self.classes, y)
        c = times + self.labels(y)
        for layer in self.layers:
            x = layer(x, c)
        shift, scale = self.modulation(c).chunk(2, dim=1)
        x = self.out(scaled(self.norm(x), shift, scale))
        side = int(x.shape[1] ** 0.5)
        x = torch.einsum("nhwpqc->nchpwq", x.reshape(-1, side, side, self.patch, self.patch, self.channels))
        return x.reshape(-1, self.channels, side * self.patch, side * self.patch)


def whisper(kind, dropout, stored):
    settings = dict(WHISPER)
    config = transformers.AutoConfig.for_model(**settings, pad_token_id=0, decoder_start_token_id=1)
    config.use_cache = False
    if dropout == "0":
        families.without_dropout(config)
    with torch.device("meta"):
        model = transformers.WhisperForConditionalGeneration._from_config(
            config, dtype=stored, attn_implementation={"flash": "flash_attention_2"}.get(kind, kind))

    def inputs():
        x = torch.zeros(B, WHISPER["num_mel_bins"], 2 * WHISPER["max_source_positions"], dtype=stored, device="cuda")
        return x, torch.zeros(B, TARGET, dtype=torch.long, device="cuda")
    return model, inputs, lambda m, x, y: m(input_features=x, labels=y).loss


def dit(name, kind, dropout, stored):
    if name == "dit":
        with torch.device("meta"):
            model = DiT(kind == "sdpa").to(stored)
    else:
        import diffusers
        from diffusers.models.attention_processor import AttnProcessor
        with torch.device("meta"):
            model = diffusers.DiTTransformer2DModel.from_config(
                {**DIFFUSERS, "dropout": 0.0 if dropout == "0" else DIFFUSERS["dropout"]}).to(stored)
        if kind == "eager":
            for layer in model.transformer_blocks:
                layer.attn1.set_processor(AttnProcessor())

    def inputs():
        x, target = (torch.zeros(B, c, 16, 16, dtype=stored, device="cuda") for c in (4, 8))
        return x, target, *(torch.zeros(B, dtype=torch.long, device="cuda") for _ in range(2))

    def loss(m, x, target, t, y):
        out = m(x, t, y)
        return F.mse_loss(out if torch.is_tensor(out) else out.sample, target)
    return model, inputs, loss


def step(name, dtype, kind, dropout):
    attention.install(True)
    stored = torch.bfloat16 if dtype == "bf16" else torch.float32
    model, inputs, run = whisper(kind, dropout, stored) if name == "whisper" else dit(name, kind, dropout, stored)
    frozen = [n for n, p in model.named_parameters() if not p.requires_grad]
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cuda")
        if name == "whisper":
            model.tie_weights()
        for n, p in model.named_parameters():
            p.requires_grad_(n not in frozen)
        model.train()
        data = inputs()
        outside = [*model.parameters(), *model.buffers(), *data]
        spans = saved.Spans(model)
        with measure.autocast("cuda", dtype == "autocast"):
            loss = run(model, *data)
        spans.remove()
        kept = saved.storages(saved.collect(loss, spans, outside))
        if "-v" in sys.argv:
            for v in kept.values():
                print(v["bytes"], v["dtype"], v["shape"], v["savers"])
        del loss
        tracker = Tracker(True)
        tracker.watch(outside, "rest")
        with tracker:
            tracker.enter("forward")
            with measure.autocast("cuda", dtype == "autocast"):
                loss = run(model, *data)
            tracker.enter("backward")
            loss.backward()
            tracker.enter("after")
    phases = {n: {k: v[k] for k in ("start", "peak", "op", "end") if k in v} for n, v in tracker.phases.items() if n != "after"}
    storages = {p.untyped_storage()._cdata: p.untyped_storage().nbytes() for p in model.parameters()}
    settings = NAMES[name][0]
    more = dict(s=WHISPER["max_source_positions"], decoder_s=TARGET) if name == "whisper" else dict(s=64)
    return dict(family=name, torch=torch.__version__, transformers=transformers.__version__,
                command="python tests/oracle/media.py tests/golden/oracle", config=settings, dtype=dtype, attention=kind,
                b=B, **more, saved_total_bytes=sum(v["bytes"] for v in kept.values()), parameter_bytes=sum(storages.values()),
                buffer_bytes=sum(p.numel() * p.element_size() for p in model.buffers()),
                input_bytes=sum(p.numel() * p.element_size() for p in data), phases=phases)


if __name__ == "__main__":
    wanted = [n for n in sys.argv[2:] if n in NAMES] or NAMES
    for name in wanted:
        for kind in NAMES[name][1]:
            for dtype in ("bf16", "fp32", "autocast"):
                if kind == "flash" and dtype == "fp32":
                    continue
                for dropout in ("default", "0") if name != "dit" else ("default",):
                    path = pathlib.Path(sys.argv[1]) / f"{name}-{dtype}-{kind}-{dropout}.json"
                    rows = step(name, dtype, kind, dropout).items()
                    path.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in rows) + "\n}\n")
