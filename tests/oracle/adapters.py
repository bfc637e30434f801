"""LoRA adapters of peft over a model of transformers, its frozen weights plain or in bitsandbytes' 4-bit formats.

An adapter setting is a dict: rank, targets, dropout, dtype ("fp32": peft's default; "bf16": autocast_adapter_dtype off),
base ("bf16", "nf4", "nf4-double"), full (modules of modules_to_save), dora.
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
    "dora-fp32": dict(rank=8, targets="all-linear", dropout=0.0, dtype="fp32", base="bf16", dora=True),
    "dora-bf16": dict(rank=8, targets="all-linear", dropout=0.0, dtype="bf16", base="bf16", dora=True),
    "dora-qv-fp32-dropout": dict(rank=8, targets=["q_proj", "v_proj"], dropout=0.05, dtype="fp32", base="bf16", dora=True),
    "dora-qv-bf16-dropout": dict(rank=8, targets=["q_proj", "v_proj"], dropout=0.05, dtype="bf16", base="bf16", dora=True),
    "dora-nf4-fp32": dict(rank=8, targets="all-linear", dropout=0.0, dtype="fp32", base="nf4", dora=True),
    "dora-nf4-fp32-dropout": dict(rank=8, targets="all-linear", dropout=0.05, dtype="fp32", base="nf4", dora=True),
}


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
        setattr(model.get_submodule(parent), last, bitsandbytes.nn.Linear4bit(
            module.in_features, module.out_features, module.bias is not None, compute_dtype=torch.bfloat16,
            compress_statistics=setting["base"] == "nf4-double", quant_type="nf4", device="meta"))


def wrap(model, setting):
    """On the meta device."""
    import peft
    from peft.tuners.lora import dora
    if setting["base"].startswith("nf4"):
        _replace(model, setting)
        model.is_loaded_in_4bit = True
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    config = peft.LoraConfig(r=setting["rank"], target_modules=setting["targets"], lora_dropout=setting["dropout"],
                             modules_to_save=setting.get("full"), task_type="CAUSAL_LM")
    if setting.get("dora"):
        config.use_dora = True
        dora.deepcopy, dora.dequantize_module_weight = lambda m: m, _weight
    model = peft.get_peft_model(model, config, autocast_adapter_dtype=setting["dtype"] == "fp32")
    model.enable_input_require_grads()
    return model


def quantise(model, setting, where):
    """Gives the 4-bit layers their packed weights, once parameters have storage; returns the tensors beside them.

    Their sizes are those of quantize_4bit, which itself does not run on fake tensors; quantised.py compares.
    """
    import bitsandbytes
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
            shape=torch.Size((module.out_features, module.in_features)), dtype=torch.bfloat16, quant_type="nf4",
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
