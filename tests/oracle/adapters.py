"""LoRA adapters of peft over a model of transformers, its frozen weights plain or in bitsandbytes' 4-bit and 8-bit formats.

An adapter setting is a dict: rank, targets, dropout, dtype ("fp32": peft's default; "bf16": autocast_adapter_dtype off),
base ("bf16", "nf4", "nf4-double", "fp4", "int8"), full (modules of modules_to_save), dora; those of TIED, of models whose head is
the words' table, one (ensure_weight_tying).  Those of OTHERS have more of peft: layers
(layers_to_transform), ranks (rank_pattern), peft_type with its own keys (more); or no adapters, but the top layers of a
model that is trained itself (top: how many; ends: whether norm and head are).  Where only
some layers have adapters, or tokens are trained, nobody calls enable_input_require_grads.
"""
import torch

SETTINGS = {  # name: setting
    "qv-fp32": dict(rank=8, targets=["q_proj", "v_proj"], dropout=0.0, dtype="fp32", base="bf16"),
    "qv-bf16": dict(rank=8, targets=["q_proj", "v_proj"], dropout=0.0, dtype="bf16", base="bf16"),
    "all-fp32": dict(rank=8, targets="all-linear", dropout=0.0, dtype="fp32", base="bf16"),
    "all-bf16": dict(rank=8, targets="all-linear", dropout=0.0, dtype="bf16", base="bf16"),
    "all-fp32-dropout": dict(rank=8, targets="all-linear", dropout=0.05, dtype="fp32", base="bf16"),
    "all-bf16-dropout": dict(rank=8, targets="all-linear", dropout=0.05, dtype="bf16", base="bf16"),
    "full-bf16": dict(rank=8, targets=["q_proj", "v_proj"], dropout=0.0, dtype="bf16", base="bf16",
                      full=["embed_tokens", "lm_head"]),
    "full-fp32": dict(rank=8, targets=["q_proj", "v_proj"], dropout=0.0, dtype="fp32", base="bf16",
                      full=["embed_tokens", "lm_head"]),
    "nf4-fp32": dict(rank=8, targets="all-linear", dropout=0.0, dtype="fp32", base="nf4"),
    "nf4-double-fp32": dict(rank=8, targets="all-linear", dropout=0.05, dtype="fp32", base="nf4-double"),
    "fp4-fp32": dict(rank=8, targets=["q_proj", "v_proj"], dropout=0.05, dtype="fp32", base="fp4"),
    "int8-fp32": dict(rank=8, targets="all-linear", dropout=0.0, dtype="fp32", base="int8"),
    "int8-fp32-dropout": dict(rank=8, targets="all-linear", dropout=0.05, dtype="fp32", base="int8"),
    "dora-fp32": dict(rank=8, targets="all-linear", dropout=0.0, dtype="fp32", base="bf16", dora=True),
    "dora-bf16": dict(rank=8, targets="all-linear", dropout=0.0, dtype="bf16", base="bf16", dora=True),
    "dora-qv-fp32-dropout": dict(rank=8, targets=["q_proj", "v_proj"], dropout=0.05, dtype="fp32", base="bf16", dora=True),
    "dora-qv-bf16-dropout": dict(rank=8, targets=["q_proj", "v_proj"], dropout=0.05, dtype="bf16", base="bf16", dora=True),
    "dora-nf4-fp32": dict(rank=8, targets="all-linear", dropout=0.0, dtype="fp32", base="nf4", dora=True),
    "dora-nf4-fp32-dropout": dict(rank=8, targets="all-linear", dropout=0.05, dtype="fp32", base="nf4", dora=True),
}

QV = dict(rank=8, targets=["q_proj", "v_proj"], dropout=0.0, base="bf16")
TIED = {f"tied-{name}-{dtype}": dict(QV, dtype=dtype, **more) for dtype in ("bf16", "fp32") for name, more in dict(
    head=dict(full=["lm_head"]), embed=dict(full=["embed_tokens"]), both=dict(full=["embed_tokens", "lm_head"]),
    one=dict(full=["embed_tokens"], one=True)).items()}

SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
OTHERS = {
    "layers-fp32": dict(rank=8, targets=SEVEN, dropout=0.0, dtype="fp32", base="bf16", layers=[1, 2]),
    "layers-qv-bf16": dict(rank=8, targets=["q_proj", "v_proj"], dropout=0.0, dtype="bf16", base="bf16", layers=[1]),
    "layers-low-fp32": dict(rank=8, targets=["q_proj", "down_proj"], dropout=0.05, dtype="fp32", base="bf16", layers=[0]),
    "ranks-fp32": dict(rank=8, targets="all-linear", dropout=0.0, dtype="fp32", base="bf16",
                       ranks={"q_proj": 16, "down_proj": 4}),
    "ia3-fp32": dict(rank=0, targets=["k_proj", "v_proj", "down_proj"], dropout=0.0, dtype="fp32", base="bf16",
                     peft_type="ia3", feedforward=["down_proj"]),
    "ia3-bf16": dict(rank=0, targets=["q_proj", "v_proj", "up_proj", "down_proj"], dropout=0.0, dtype="bf16", base="bf16",
                     peft_type="ia3", feedforward=["down_proj", "up_proj"]),
    "prompt": dict(rank=0, targets=[], dropout=0.0, dtype="fp32", base="bf16", peft_type="prompt-tuning", virtual=8),
    "p-tuning": dict(rank=0, targets=[], dropout=0.0, dtype="fp32", base="bf16", peft_type="p-tuning", virtual=8,
                     encoder_hidden=64),
    "prefix": dict(rank=0, targets=[], dropout=0.0, dtype="fp32", base="bf16", peft_type="prefix-tuning", virtual=8),
    "prefix-projection": dict(rank=0, targets=[], dropout=0.0, dtype="fp32", base="bf16", peft_type="prefix-tuning", virtual=8,
                              projection=True, encoder_hidden=64),
    "top1": dict(top=1, ends=True), "top2": dict(top=2, ends=False), "top0": dict(top=0, ends=True),
}


def _config(setting):
    import peft
    kind, virtual = setting.get("peft_type", "lora"), dict(num_virtual_tokens=setting.get("virtual"), task_type="CAUSAL_LM")
    hidden = dict(encoder_hidden_size=setting.get("encoder_hidden"))
    if kind == "ia3":
        return peft.IA3Config(target_modules=setting["targets"], feedforward_modules=setting["feedforward"],
                              modules_to_save=setting.get("full"), task_type="CAUSAL_LM")
    if kind == "prompt-tuning":
        return peft.PromptTuningConfig(**virtual)
    if kind == "p-tuning":
        return peft.PromptEncoderConfig(**virtual, **hidden)
    if kind == "prefix-tuning":
        return peft.PrefixTuningConfig(**virtual, **hidden, prefix_projection=setting.get("projection", False))
    return peft.LoraConfig(r=setting["rank"], target_modules=setting["targets"], lora_dropout=setting["dropout"],
                           modules_to_save=list(setting.get("full", [])) or None, layers_to_transform=setting.get("layers"),
                           rank_pattern=setting.get("ranks", {}), ensure_weight_tying=setting.get("one", False),
                           task_type="CAUSAL_LM")


def _freeze(model, setting):
    """The last layers train, and what stands on them where `ends`; of tied words neither table nor head."""
    model.requires_grad_(False)
    layers = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))
    for layer in list(layers)[len(layers) - setting["top"]:]:
        layer.requires_grad_(True)
    if setting["ends"]:
        for name, module in model.named_modules():
            if name.rpartition(".")[2] in ("lm_head",) or name in ("model.norm", "transformer.ln_f"):
                module.requires_grad_(True)
    return model


def _weight(module):
    """What PEFT's dequantize_module_weight gives: fake tensors do not have bitsandbytes' class, which it looks for."""
    import bitsandbytes
    if module.weight.device.type == "meta":  # of the first norm; no state yet
        return torch.empty(module.out_features, module.in_features, device="meta", dtype=torch.bfloat16)
    state = getattr(module.weight, "quant_state", None)
    return module.weight if state is None else bitsandbytes.functional.dequantize_4bit(module.weight, state)


def _replace(model, setting):
    """What transformers' bitsandbytes integration does: every nn.Linear but the head."""
    import bitsandbytes
    for name, module in list(model.named_modules()):
        if not isinstance(module, torch.nn.Linear) or name.endswith("lm_head"):
            continue
        parent, _, last = name.rpartition(".")
        sizes = module.in_features, module.out_features, module.bias is not None
        setattr(model.get_submodule(parent), last, bitsandbytes.nn.Linear8bitLt(
            *sizes, has_fp16_weights=False, threshold=6.0, device="meta") if setting["base"] == "int8" else
            bitsandbytes.nn.Linear4bit(
                *sizes, compute_dtype=torch.bfloat16, compress_statistics=setting["base"] == "nf4-double",
                quant_type=setting["base"][:3], device="meta"))


def wrap(model, setting):
    """On the meta device."""
    if "top" in setting:
        return _freeze(model, setting)
    import peft
    from peft.tuners.lora import dora
    if setting["base"] != "bf16":
        _replace(model, setting)
        model.is_loaded_in_8bit = setting["base"] == "int8"
        model.is_loaded_in_4bit = not model.is_loaded_in_8bit
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    config = _config(setting)
    if setting.get("dora"):
        config.use_dora = True
        dora.deepcopy, dora.dequantize_module_weight = lambda m: m, _weight
    model = peft.get_peft_model(model, config, autocast_adapter_dtype=setting["dtype"] == "fp32")
    if "layers" not in setting and "virtual" not in setting:
        model.enable_input_require_grads()
    return model


def _int8_quantised(a, threshold=0.0):
    """bitsandbytes/backends/cuda/ops.py, int8_vectorwise_quant of an input without outliers, but for the kernel."""
    scales = torch.empty(a.numel() // a.shape[-1], dtype=torch.float32, device=a.device)
    packed = torch.empty(a.shape, dtype=torch.int8, device=a.device)
    outliers = a.abs() >= threshold
    del outliers
    return packed, scales, torch.empty(0, dtype=torch.int64, device=a.device)


def _int8_product(a, packed, weight, _, __, ___, bias):
    """backends/default/ops.py, int8_mixed_scaled_mm; backends/cuda/ops.py, int8_linear_matmul, int8_mm_dequant."""
    sums = torch.empty(packed.shape[0], weight.shape[0], dtype=torch.int32, device=a.device)
    half = torch.empty_like(sums, dtype=torch.float16)
    result = half.to(a.dtype)
    del sums, half
    return result, None


def _quantise_8bit(model, where):
    """Int8Params._quantize: 8 bits an element, a scale a row."""
    import bitsandbytes
    bitsandbytes.functional.int8_vectorwise_quant = _int8_quantised
    torch.ops.bitsandbytes.int8_mixed_scaled_mm = _int8_product
    more = []
    for module in model.modules():
        if isinstance(module, bitsandbytes.nn.Linear8bitLt):
            rows, columns = module.out_features, module.in_features
            module.weight = torch.nn.Parameter(torch.empty(rows, columns, dtype=torch.int8, device=where), requires_grad=False)
            module.weight.CB = None  # fake tensors do not have bitsandbytes' class
            module.state.CB = module.weight.data
            module.state.SCB = torch.empty(rows, dtype=torch.float32, device=where)
            more.append(module.state.SCB)
    return more


def quantise(model, setting, where):
    """Gives the 4-bit layers their packed weights, once parameters have storage; returns the tensors beside them.

    Their sizes are those of quantize_4bit, which itself does not run on fake tensors; quantised.py compares.
    """
    import bitsandbytes
    if setting["base"] == "int8":
        return _quantise_8bit(model, where)
    state_of = bitsandbytes.functional.QuantState
    more = []
    for module in model.modules():
        if not isinstance(module, bitsandbytes.nn.Linear4bit):
            continue
        n = module.out_features * module.in_features

        def empty(size, dtype):
            more.append(torch.empty(size, dtype=dtype, device=where))
            return more[-1]

        blocks, inner, offset = -(-n // 64), None, None
        if setting["base"] == "nf4-double":
            inner = state_of(absmax=empty(-(-blocks // 256), torch.float32), code=empty(256, torch.float32),
                             blocksize=256, dtype=torch.float32)
            offset = empty((), torch.float32)
        module.weight = torch.nn.Parameter(torch.empty(n // 2, 1, dtype=torch.uint8, device=where), requires_grad=False)
        module.weight.quant_state = state_of(
            absmax=empty(blocks, torch.uint8 if inner else torch.float32), code=empty(16, torch.float32), blocksize=64,
            shape=torch.Size((module.out_features, module.in_features)), dtype=torch.bfloat16, quant_type=setting["base"][:3],
            state2=inner, offset=offset)
    return more


def check_sizes():
    """The sizes of `quantise` are those of bitsandbytes, on real tensors."""
    from bitsandbytes import functional
    for rows, columns in ((208, 96), (1000, 512)):
        for double in (False, True):
            packed, state = functional.quantize_4bit(torch.randn(rows, columns), compress_statistics=double,
                                                     quant_type="nf4")
            blocks = -(-rows * columns // 64)
            assert packed.nbytes == rows * columns // 2
            assert (state.absmax.nbytes, state.code.nbytes) == (blocks * (1 if double else 4), 16 * 4)
            if double:
                inner = state.state2
                assert (inner.absmax.nbytes, inner.code.nbytes, state.offset.nbytes) == (-(-blocks // 256) * 4, 1024, 4)
