"""One training step of a small Hugging Face model: what is saved, and how many bytes live, phase by phase."""
import contextlib
import device  # noqa: F401  (before torch)
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

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


class Run:
    """Builds the model on `where` ("cuda": fake tensors, "cpu": real ones), runs forward and, if asked, backward."""

    def __init__(self, family, shape, dtype="bf16", attn="sdpa", dropout="default", layers=None, where="cuda",
                 backward=False, hold_logits=False, experts="grouped_mm"):
        self.config, self.settings = make_config(family, shape, dropout, layers)
        more = {"experts_implementation": experts} if family == "mixtral" else {}
        self.family, self.shape, self.where = family, shape, where
        attention.install(where == "cuda")
        attention.last_choice.clear()
        stored = torch.bfloat16 if dtype == "bf16" else torch.float32
        name = {"flash": "flash_attention_2"}.get(attn, attn)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(self.config, dtype=stored, attn_implementation=name,
                                                                        **more)
        fake = FakeTensorMode(allow_non_fake_inputs=True) if where == "cuda" else contextlib.nullcontext()
        with fake:
            model.to_empty(device=where)
            model.tie_weights()
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
            outside = list(model.parameters()) + list(model.buffers()) + [ids]
            if not backward:
                spans = saved.Spans(model)
                with autocast(where, dtype == "autocast"):
                    loss = model(input_ids=ids, labels=ids).loss
                spans.remove()
                self.operations = saved.collect(loss, spans, outside)
                self.storages = saved.storages(self.operations)
                self.total = sum(v["bytes"] for v in self.storages.values())
            else:
                self.tracker = tracker = Tracker()
                tracker.fake = where == "cuda"
                tracker.watch(outside, "rest")
                head = model.get_output_embeddings()
                hook = head.register_forward_hook(lambda *_: tracker.enter("loss"))

                def watch_head_input(_, inputs):  # its gradient is ready when the head's backward has run
                    inputs[0].register_hook(lambda _: tracker.enter("backward_layers"))

                head.register_forward_pre_hook(watch_head_input)
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
                hook.remove()
            self.sdpa = sorted(set(attention.last_choice))
