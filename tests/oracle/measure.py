"""One training step of a small Hugging Face model: what is saved, and how many bytes live, phase by phase."""
import contextlib
import device  # noqa: F401  (before torch)
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

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


WHOLES = {"qwen2_vl_text": "Qwen2VL", "qwen2_5_vl_text": "Qwen2_5_VL", "qwen3_vl_text": "Qwen3VL",
          "qwen3_vl_moe_text": "Qwen3VLMoe"}


def make_model(config, stored, name, **more):
    if config.model_type not in WHOLES:
        return class_of(config)._from_config(config, dtype=stored, attn_implementation=name, **more)
    prefix = WHOLES[config.model_type]  # a text part alone has no head: the whole's class, without its tower
    whole = getattr(transformers, prefix + "Config")(text_config=config.to_dict())
    whole.text_config.use_cache = False
    model = getattr(transformers, prefix + "ForConditionalGeneration")._from_config(
        whole, dtype=stored, attn_implementation=name, **more)
    del model.model.visual
    return model


FINAL_NORM = ("norm", "ln_f", "final_layer_norm", "final_layernorm", "norm_f", "layernorm", "transform", "pooler",
              "pre_classifier")
LAYERS = ("layers", "h", "blocks", "layer")
HEADS = ("classifier", "qa_outputs", "score")


def head_of(model):
    return model.get_output_embeddings() or next(m for n, m in model.named_modules() if n in HEADS)


def class_of(config):
    """The class that the configuration names, else the family's causal language model."""
    name = (getattr(config, "architectures", None) or [None])[0]
    return getattr(transformers, name) if name else transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def watch_phases(model, tracker, whole):
    """Marks the phases.  The backward ones begin when the gradient of a module's input is complete; nothing is held.
    `whole`: backward is one phase."""
    head = head_of(model)
    if whole:
        return [head.register_forward_hook(lambda *_: tracker.enter("loss"))]
    named = [(n.split("."), m) for n, m in model.named_modules()]
    norm = [m for n, m in named if n[-1] in FINAL_NORM and not set(n) & set(LAYERS)
            or n[-1] == "lm_head" and len(list(m.children())) > 1 and not hasattr(m, "modules_to_save")]
    first = [m for n, m in named if len(n) > 1 and n[-2] in LAYERS and n[-1] == "0"]
    assert len(norm) <= 2 and len(first) == 1  # none: the head takes the last layer's output; pooler and transform

    def mark(module, phase):
        def before(_, inputs, more):
            x = inputs[0] if inputs else more["hidden_states"]
            x.register_hook(lambda _: tracker.enter(phase))
        return module.register_forward_pre_hook(before, with_kwargs=True)

    hooks = [head.register_forward_hook(lambda *_: tracker.enter("loss")), mark(first[0], "backward_embedding")]
    if norm:
        hooks += [mark(head, "backward_norm"), mark(norm[-1], "backward_layers")]
    else:
        hooks.append(mark(head, "backward_layers"))
    return hooks


class Balanced(TorchDispatchMode):
    """Answers that depend on data, for experts in a Python loop (dbrx): each has its share of the rows, and its turn."""

    def __init__(self, rows, experts):
        super().__init__()
        self.rows, self.experts, self.turn = -(-rows // experts), experts, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.nonzero.default:
            x = args[0]
            rows = self.experts if x.dim() == 1 else self.rows
            return torch.ops.aten.new_empty.default(x, (rows, x.dim()), dtype=torch.long)
        if function is torch.ops.aten._local_scalar_dense.default and not args[0].is_floating_point():
            self.turn += 1  # expert_mask, v1, w1, w2
            return (self.turn - 1) // 4 % self.experts
        return function(*args, **(kwargs or {}))


def balanced(config, shape, where):
    if config.model_type != "dbrx" or where != "cuda":
        return contextlib.nullcontext()
    experts = config.ffn_config
    return Balanced(shape["b"] * shape["s"] * experts.moe_top_k, experts.moe_num_experts)


class Run:
    """Builds the model on `where` ("cuda": fake tensors, "cpu": real ones), runs forward and, if asked, backward."""

    def __init__(self, family, shape, dtype="bf16", attn="sdpa", dropout="default", layers=None, where="cuda",
                 backward=False, hold_logits=False, experts="grouped_mm", observer=Tracker, setting=None,
                 padded=False):
        self.config, self.settings = make_config(family, shape, dropout, layers)
        more = {"experts_implementation": experts} if family == "mixtral" else {}
        self.family, self.shape, self.where = family, shape, where
        attention.install(where == "cuda")
        attention.last_choice.clear()
        over = setting and "top" not in setting  # adapters lie over bf16 weights
        stored = torch.bfloat16 if dtype == "bf16" or over else torch.float32
        stored = torch.float16 if dtype == "fp16" else stored
        name = {"flash": "flash_attention_2"}.get(attn, attn)
        with torch.device("meta"):
            model = make_model(self.config, stored, name, **more)
        if setting:
            model = adapters.wrap(model, setting)
        fake = FakeTensorMode(allow_non_fake_inputs=True) if where == "cuda" else contextlib.nullcontext()
        with fake, balanced(self.config, shape, where):
            model.to_empty(device=where)
            packed = over and setting["base"].startswith("nf4")
            if not packed:
                model.tie_weights()
            beside = adapters.quantise(model, setting, where) if packed else []
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
            wanted = families.targets(type(model).__name__, ids, getattr(self.config, "problem_type", None),
                                      self.settings.get("num_labels", 2))
            if hasattr(self.config, "image_size"):
                given = families.image(self.config, shape["b"], where)
            else:
                given = dict(input_ids=ids)
            if padded:
                given["attention_mask"] = torch.ones_like(ids)
            outside = list(model.parameters()) + list(model.buffers()) + list({**given, **wanted}.values()) + beside
            self.beside = beside
            if not backward:
                spans = saved.Spans(model)
                with autocast(where, dtype == "autocast"):
                    loss = model(**given, **wanted).loss
                spans.remove()
                self.operations = saved.collect(loss, spans, outside)
                self.storages = saved.storages(self.operations)
                self.total = sum(v["bytes"] for v in self.storages.values())
            else:
                self.tracker = tracker = observer(where == "cuda")
                tracker.watch(outside, "rest")
                whole = setting in adapters.OTHERS.values()
                hooks = watch_phases(model, tracker, whole)
                with tracker:
                    tracker.enter("forward")
                    with autocast(where, dtype == "autocast"):
                        output = model(**given, **wanted)
                        loss = output.loss
                    if not hold_logits:
                        del output
                    tracker.enter("backward" if whole else "backward_head")
                    loss.backward()
                    tracker.enter("after")
                for hook in hooks:
                    hook.remove()
            self.sdpa = sorted(set(attention.last_choice))
