"""One training step of a small Hugging Face model: what is saved, and how many bytes live, phase by phase."""
import contextlib
import device  # noqa: F401  (before torch)
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

import adapters
import attention
import families
import saved
from tracker import Tracker

torch.autograd.set_multithreading_enabled(False)
transformers.logging.set_verbosity_error()


def make_config(family, shape, dropout="default", layers=None):
    settings = families.FAMILIES[family][0](dict(shape, **({"L": layers} if layers else {})))
    config = transformers.AutoConfig.for_model(**settings)
    config.use_cache = False
    if dropout == "0":
        families.without_dropout(config)
    return config, settings


@contextlib.contextmanager
def autocast(kind, on):
    """torch.autocast refuses "cuda" on a CPU build, so its switches are set by hand."""
    if not on:
        yield
        return
    torch.set_autocast_enabled(kind, True)
    torch.set_autocast_dtype(kind, torch.bfloat16)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        torch.autocast_decrement_nesting()
        torch.clear_autocast_cache()
        torch.set_autocast_enabled(kind, False)


FINAL_NORM = ("norm", "ln_f", "final_layer_norm", "final_layernorm", "norm_f")
LAYERS = ("layers", "h", "blocks")


def watch_phases(model, tracker):
    """Marks the phases.  The backward ones begin when the gradient of a module's input is complete; nothing is held."""
    head = model.get_output_embeddings()
    named = [(n.split("."), m) for n, m in model.named_modules()]
    norm = [m for n, m in named if n[-1] in FINAL_NORM and not set(n) & set(LAYERS)]
    first = [m for n, m in named if len(n) > 1 and n[-2] in LAYERS and n[-1] == "0"]
    assert len(norm) == 1 and len(first) == 1

    def mark(module, phase):
        def before(_, inputs, more):
            x = inputs[0] if inputs else more["hidden_states"]
            x.register_hook(lambda _: tracker.enter(phase))
        return module.register_forward_pre_hook(before, with_kwargs=True)

    return [head.register_forward_hook(lambda *_: tracker.enter("loss")), mark(head, "backward_norm"),
            mark(norm[0], "backward_layers"), mark(first[0], "backward_embedding")]


class Run:
    """Builds the model on `where` ("cuda": fake tensors, "cpu": real ones), runs forward and, if asked, backward."""

    def __init__(self, family, shape, dtype="bf16", attn="sdpa", dropout="default", layers=None, where="cuda",
                 backward=False, hold_logits=False, experts="grouped_mm", observer=Tracker, setting=None):
        self.config, self.settings = make_config(family, shape, dropout, layers)
        more = {"experts_implementation": experts} if family == "mixtral" else {}
        self.family, self.shape, self.where = family, shape, where
        attention.install(where == "cuda")
        attention.last_choice.clear()
        stored = torch.bfloat16 if dtype == "bf16" or setting else torch.float32
        name = {"flash": "flash_attention_2"}.get(attn, attn)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(self.config, dtype=stored, attn_implementation=name,
                                                                        **more)
        if setting:
            model = adapters.wrap(model, setting)
        fake = FakeTensorMode(allow_non_fake_inputs=True) if where == "cuda" else contextlib.nullcontext()
        with fake:
            model.to_empty(device=where)
            if not setting:
                model.tie_weights()
            beside = adapters.quantise(model, setting, where) if setting and setting["base"] != "bf16" else []
            model.train()
            if where == "cpu":
                with torch.no_grad():
                    for p in model.parameters():
                        p.normal_(std=0.05)
                    for n, t in model.named_buffers():
                        t.fill_(1)
            ids = torch.zeros(shape["b"], shape["s"], dtype=torch.long, device=where)
            if where == "cpu":
                ids.random_(3, shape["v"])
            self.model, self.ids = model, ids
            outside = list(model.parameters()) + list(model.buffers()) + [ids] + beside
            self.beside = beside
            if not backward:
                spans = saved.Spans(model)
                with autocast(where, dtype == "autocast"):
                    loss = model(input_ids=ids, labels=ids).loss
                spans.remove()
                self.operations = saved.collect(loss, spans, outside)
                self.storages = saved.storages(self.operations)
                self.total = sum(v["bytes"] for v in self.storages.values())
            else:
                self.tracker = tracker = observer(where == "cuda")
                tracker.watch(outside, "rest")
                hooks = watch_phases(model, tracker)
                with tracker:
                    tracker.enter("forward")
                    with autocast(where, dtype == "autocast"):
                        output = model(input_ids=ids, labels=ids)
                        loss = output.loss
                    if not hold_logits:
                        del output
                    tracker.enter("backward_head")
                    loss.backward()
                    tracker.enter("after")
                for hook in hooks:
                    hook.remove()
            self.sdpa = sorted(set(attention.last_choice))
