"""Whole steps of LitGPT's model and loss, as its scripts have them: finetune/full.py, finetune/lora.py.

Its own classes (litgpt.model, litgpt.lora), its own loss, lightning's conversion of what the model gives (Fabric's precision
plugins: in fp32), its checkpoints (a wrapper around each Block); no Fabric around, whose hooks move nothing.

usage: litgpt_steps.py FOLDER        writes FOLDER/litgpt.json
needs: pip install --target LITGPT --no-deps litgpt==0.5.13 lightning==2.6.6 lightning-utilities torchmetrics jsonargparse
       docstring-parser typeshed-client; PYTHONPATH=LITGPT
"""
import dataclasses
import functools

import device  # noqa: F401  (before torch)
import torch
from lightning.fabric.plugins.precision import HalfPrecision, MixedPrecision, Precision
from litgpt.lora import GPT as LoraGPT, Config as LoraConfig, mark_only_lora_as_trainable
from litgpt.model import GPT, Config
from litgpt.utils import chunked_cross_entropy
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrappers

import measure
import step

PLUGINS = {"bf16-amp": functools.partial(MixedPrecision, "bf16-mixed", "cuda"), "bf16": functools.partial(HalfPrecision, "bf16-true"),
           "fp32": Precision}
SHAPES = {  # more than one piece of 128 rows
    "wide": dict(b=1, s=320, h=512, a=8, kv=4, d=64, f=1408, v=4096, L=4),
    "long": dict(b=3, s=256, h=256, a=4, kv=2, d=64, f=768, v=2048, L=6),
}
FAMILIES = {  # family: what transformers says of it, what LitGPT says
    "llama": (dict(model_type="llama"), dict(norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP")),
    "phi": (dict(model_type="phi", partial_rotary_factor=0.5),
            dict(rotary_percentage=0.5, shared_attention_norm=True, parallel_residual=True, bias=True, lm_head_bias=True,
                 norm_class_name="LayerNorm", mlp_class_name="GptNeoxMLP", gelu_approximate="tanh")),
    "gpt_neox": (dict(model_type="gpt_neox", rotary_pct=0.25),
                 dict(rotary_percentage=0.25, parallel_residual=True, bias=True, norm_class_name="LayerNorm", mlp_class_name="GptNeoxMLP")),
    "gemma2": (dict(model_type="gemma2", final_logit_softcapping=30.0, attn_logit_softcapping=50.0, query_pre_attn_scalar=64,
                    sliding_window=4096, layer_types=None),
               dict(norm_class_name="RMSNorm", mlp_class_name="GemmaMLP", gelu_approximate="tanh", scale_embeddings=True,
                    attention_scores_scalar=64, attention_logit_softcapping=50.0, final_logit_softcapping=30.0, post_attention_norm=True,
                    post_mlp_norm=True)),
}
GROUPED = ("llama", "gemma2")
TARGETS = {"q,v": dict(lora_query=True, lora_value=True), "q,k,v": dict(lora_query=True, lora_key=True, lora_value=True),
           "q,k,v,o,gate,up,down": dict(lora_query=True, lora_key=True, lora_value=True, lora_projection=True, lora_mlp=True)}


@dataclasses.dataclass(frozen=True)
class Run(step.Run):
    targets: str = ""
    lora_dropout: float = 0.0


def groups(run):
    return SHAPES[run.shape]["kv" if run.family in GROUPED else "a"]


def describe(run):
    """For memplan, in transformers' words."""
    c = SHAPES[run.shape]
    settings = dict(FAMILIES[run.family][0], hidden_size=c["h"], num_attention_heads=c["a"], intermediate_size=c["f"], vocab_size=c["v"],
                    num_hidden_layers=c["L"], max_position_embeddings=c["s"])
    settings.pop("layer_types", None)
    if run.family == "gemma2":
        settings.update(layer_types=["full_attention"] * c["L"])
    if run.family in GROUPED:
        settings.update(num_key_value_heads=c["kv"], head_dim=c["d"])
    return settings


def build(run, where="cuda"):
    c = SHAPES[run.shape]
    said = dict(FAMILIES[run.family][1])
    settings = dict(name="small", block_size=c["s"], n_layer=c["L"], n_embd=c["h"], n_head=c["a"], head_size=c["d"], intermediate_size=c["f"],
                    n_query_groups=groups(run), vocab_size=c["v"], padded_vocab_size=c["v"],
                    **dict(dict(rotary_percentage=1.0, parallel_residual=False, bias=False), **said))
    adapts = dict(lora_r=8, lora_alpha=16, lora_dropout=run.lora_dropout, **TARGETS[run.targets]) if run.targets else {}
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(step.STORED[run.precision])  # HalfPrecision.module_init_context
    try:
        with torch.device("meta"):
            model = LoraGPT(LoraConfig(**settings, **adapts)) if adapts else GPT(Config(**settings))
    finally:
        torch.set_default_dtype(dtype)
    if adapts:
        mark_only_lora_as_trainable(model)
    if run.recompute == "full":
        blocks = type(model.transformer.h[0])
        wrap = functools.partial(wrappers.checkpoint_wrapper, preserve_rng_state=False)
        wrappers.apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrap, check_fn=lambda m: isinstance(m, blocks))
    model.get_output_embeddings = lambda: torch.nn.Identity()
    model.tie_weights = lambda: None
    return model, describe(run)


def materialize(run, model, where):
    model.to_empty(device=where)
    model.train()
    c = SHAPES[run.shape]
    return torch.zeros(c["b"], c["s"], dtype=torch.long, device=where)


def make_optimizer(run, parameters):
    return old_optimizer(run, [p for p in parameters if p.requires_grad])


class Steps(step.Steps):
    """The script's loop: `logits` and `loss` are its variables until they have new values."""
    logits = loss = None

    def micro_batch(self, model, ids, index):
        run = self.run
        plugin = PLUGINS[run.precision]()
        self.enter("forward", index)
        with measure.autocast(self.where, run.precision == "bf16-amp"):
            out = model(ids, lm_head_chunk_size=128) if run.targets else model(ids)
        out = plugin.convert_output(out)
        self.logits = out
        del out
        self.enter("loss", index)
        if run.targets:
            self.logits[-1] = self.logits[-1][..., :-1, :]
            self.loss = chunked_cross_entropy(self.logits, ids[..., 1:])
        else:
            self.loss = chunked_cross_entropy(self.logits[..., :-1, :], ids[..., 1:])
        self.enter("backward", index)
        (self.loss / run.grad_accum).backward()


def setup_of(run):
    c = SHAPES[run.shape]
    kernel = "flash" if run.precision != "fp32" else "sdpa"
    more = dict(lora_rank=8, lora_targets=run.targets, lora_dropout=run.lora_dropout,
                lora_dtype="bf16" if run.precision == "bf16" else "fp32") if run.targets else {}
    return dict(framework="hf", implementation="litgpt", micro_batch=c["b"], seq_len=c["s"], precision=run.precision, attention=kernel,
                optimizer=run.optimizer, optimizer_impl=run.optimizer_impl, grad_accum=run.grad_accum, clip_grad=run.clip_grad,
                recompute=run.recompute, **more)


def record(run):
    steps = Steps(run)
    first, later = steps.measure()
    return dict(config=steps.settings, setup=setup_of(run), parameters=steps.parameters, weight_bytes=steps.weights, first=first,
                later=later)


def runs(_):
    for shape in SHAPES:
        for family in FAMILIES:
            base = dict(shape=shape, family=family, clip_grad=False)
            for precision in ("bf16-amp", "bf16"):
                yield Run(**base, precision=precision)
                yield Run(**base, precision=precision, targets="q,v")
            yield Run(**base, precision="bf16", recompute="full", grad_accum=2)
            yield Run(**base, precision="bf16", targets="q,k,v,o,gate,up,down", recompute="full", grad_accum=2)
            yield Run(**base, precision="bf16", targets="q,k,v", lora_dropout=0.05)
        yield Run(shape=shape, family="llama", clip_grad=False, precision="fp32")
        yield Run(shape=shape, family="llama", clip_grad=True, optimizer_impl="fused")


if __name__ == "__main__":
    old_optimizer = step.make_optimizer
    step.build, step.materialize, step.make_optimizer, step.shape_of = build, materialize, make_optimizer, lambda run: SHAPES[run.shape]
    step.main_of(["litgpt"], runs, record, "python tests/oracle/litgpt_steps.py tests/golden/oracle/steps")
