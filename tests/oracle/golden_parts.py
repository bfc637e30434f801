"""Writes tests/golden/oracle/part-<name>-<dtype>-<attention>.json: parts of models that are no whole by themselves, a
vision or a text tower with the mean of what it hands on as loss, and CLIP's two towers; part-<name>-frozen-...: wholes
of which some parts' weights have requires_grad False; part-<name>-lora-...: wholes with PEFT's adapters, and with some
parts left out of them (exclude_modules).  The latter need peft.

usage: golden_parts.py FOLDER [name ...]
"""
import importlib
import json
import operator
import pathlib
import sys

import device  # noqa: F401  (before torch)
import torch
import transformers
from transformers import vision_utils
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.llama4 import modeling_llama4
from transformers.models.llava import modeling_llava
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

import attention
import measure
import saved
from tracker import Tracker

B, S, L = 3, 40, 3
TOWER = dict(hidden_size=96, num_attention_heads=6, intermediate_size=208, num_hidden_layers=L)
IMAGE = dict(TOWER, image_size=56, patch_size=8, num_channels=3)
WORDS = dict(TOWER, vocab_size=1234, max_position_embeddings=64, eos_token_id=2)

CONFIGS = {
    "siglip": dict(model_type="siglip_vision_model", vision_use_head=False, **IMAGE),
    "clip-vision": dict(model_type="clip_vision_model", **IMAGE),
    "clip-text": dict(model_type="clip_text_model", **WORDS),
    "clip": dict(model_type="clip", projection_dim=40, text_config=dict(model_type="clip_text_model", **WORDS),
                 vision_config=dict(model_type="clip_vision_model", **{**IMAGE, "hidden_size": 144})),
}
GEMMA = dict(TOWER, model_type="gemma3_text", num_key_value_heads=2, vocab_size=1234, max_position_embeddings=64,
             head_dim=16, query_pre_attn_scalar=16, sliding_window=512)
CONFIGS["siglip-pooled"] = {**CONFIGS["siglip"], "vision_use_head": True}
CONFIGS["gemma3"] = dict(model_type="gemma3", mm_tokens_per_image=4, image_token_index=1200, text_config=GEMMA,
                         vision_config=dict(CONFIGS["siglip"], hidden_size=144))
LLAMA = dict(TOWER, model_type="llama", num_key_value_heads=2, vocab_size=1234, max_position_embeddings=128)
EYE = {**CONFIGS["clip-vision"], "hidden_size": 144}
CONFIGS["llava"] = dict(model_type="llava", image_token_index=1200, text_config=LLAMA, vision_config=EYE)
CONFIGS["llava-last"] = dict(CONFIGS["llava"], vision_feature_layer=-1, vision_feature_select_strategy="full",
                             multimodal_projector_bias=False)
CONFIGS["llava-siglip"] = dict(CONFIGS["llava"], text_config=dict(LLAMA, model_type="qwen2"), vision_feature_layer=-3,
                               vision_config={**CONFIGS["siglip"], "hidden_size": 144, "vision_use_head": True})
for few, eye in (("llava-few", "llava"), ("llava-siglip-few", "llava-siglip")):  # words: so that the loss is not the fullest moment
    CONFIGS[few] = {**CONFIGS[eye], "image_token_index": 200, "vision_feature_layer": -3}
    CONFIGS[few]["text_config"] = {**CONFIGS[eye]["text_config"], "vocab_size": 256}
CONFIGS["llava-layers"] = dict(CONFIGS["llava"], vision_feature_layer=[-3, -2])
SHUFFLED = dict(TOWER, model_type="llama4_vision_model", image_size=64, patch_size=8, intermediate_size=384,
                projector_input_dim=88, projector_output_dim=88, vision_output_dim=88)
CONFIGS["llama4-vision"] = SHUFFLED
CONFIGS["llama4"] = dict(model_type="llama4", image_token_index=1200, vision_config=SHUFFLED, text_config=dict(
    TOWER, model_type="llama4_text", num_key_value_heads=2, head_dim=16, vocab_size=1234, max_position_embeddings=64,
    num_local_experts=4, intermediate_size_mlp=304, interleave_moe_layer_step=2))
CLASSES = {"siglip": "SiglipVisionModel", "siglip-pooled": "SiglipVisionModel", "clip-vision": "CLIPVisionModel", "clip-text": "CLIPTextModel",
           "clip": "CLIPModel", "gemma3": "Gemma3ForConditionalGeneration", "llama4-vision": "Llama4VisionModel",
           "llava": "LlavaForConditionalGeneration", "llama4": "Llama4ForConditionalGeneration"}
for module in (modeling_gemma3, modeling_llava, modeling_llama4):
    module.torch_compilable_check = lambda *_: None  # compares numbers that fake tensors do not have
ROWS = dict(num_heads=6, depth=L, spatial_merge_size=2, temporal_patch_size=2, patch_size=14)
CONFIGS["qwen2_vl-vision"] = dict(model_type="qwen2_vl_vision", embed_dim=96, hidden_size=112, mlp_ratio=2, **ROWS)
CONFIGS["qwen2_5_vl-vision"] = dict(model_type="qwen2_5_vl_vision", hidden_size=96, out_hidden_size=112, intermediate_size=208,
                                    window_size=112, fullatt_block_indexes=[1], **ROWS)
CONFIGS["qwen3_vl-vision"] = dict(model_type="qwen3_vl_vision", hidden_size=96, out_hidden_size=112, intermediate_size=208,
                                  num_position_embeddings=49, deepstack_visual_indexes=[0, 1], **dict(ROWS, depth=4))
CONFIGS["qwen3_vl-vision-last"] = dict(CONFIGS["qwen3_vl-vision"], deepstack_visual_indexes=[1, 3])
CLASSES.update({"qwen3_vl-vision": "models.qwen3_vl.modeling_qwen3_vl.Qwen3VLVisionModel",
                "qwen3_vl-vision-last": "models.qwen3_vl.modeling_qwen3_vl.Qwen3VLVisionModel",
                "qwen2_vl-vision": "models.qwen2_vl.modeling_qwen2_vl.Qwen2VisionTransformerPretrainedModel",
                "qwen2_5_vl-vision": "models.qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel"})
SIDE = 14  # patches a side of Qwen's images: two windows a side, of 4 and of 3 tokens
for towers in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5"):
    importlib.import_module(f"transformers.models.{towers}.modeling_{towers}").torch_compilable_check = lambda *_: None


MROPE = dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 3, 3])
WORDS_OF_QWEN = dict(TOWER, num_key_value_heads=2, vocab_size=1234, max_position_embeddings=512, rope_parameters=MROPE)
for qwen in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"):
    key = "hidden_size" if qwen == "qwen2_vl" else "out_hidden_size"
    CONFIGS[qwen] = dict(model_type=qwen, image_token_id=1200, text_config=dict(WORDS_OF_QWEN, model_type=qwen + "_text"),
                         vision_config={**CONFIGS.get(qwen + "-vision", CONFIGS["qwen3_vl-vision"]), "model_type": qwen, key: 96})
CLASSES.update({"qwen2_vl": "Qwen2VLForConditionalGeneration", "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration"})

for qwen in ("qwen3_vl", "qwen3_vl_moe"):
    CONFIGS[qwen]["text_config"]["head_dim"] = 16
CONFIGS["qwen3_vl_moe"]["text_config"].update(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64)
CONFIGS["qwen3_vl-last"] = {**CONFIGS["qwen3_vl"], "vision_config": {**CONFIGS["qwen3_vl"]["vision_config"],
                                                                     "deepstack_visual_indexes": [1, 3]}}
# Qwen 3.5's layers without attention are state_space.py's.
CONFIGS["qwen3_5"] = dict(
    model_type="qwen3_5", image_token_id=1200, vision_config={
        k: v for k, v in CONFIGS["qwen3_vl"]["vision_config"].items() if not k.startswith("deepstack")} | dict(model_type="qwen3_5_vision"),
    text_config=dict(WORDS_OF_QWEN, model_type="qwen3_5_text", head_dim=16, layer_types=["full_attention"] * L,
                     rope_parameters=dict(MROPE, mrope_section=[2, 0, 0], partial_rotary_factor=0.25)))
CLASSES["qwen3_5"] = "Qwen3_5ForConditionalGeneration"
CLASSES.update({"qwen3_vl": "Qwen3VLForConditionalGeneration", "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration"})


class Seen(torch.autograd.Function):
    """x[mask], of which fake tensors do not know how many rows it has: the mask is kept."""

    @staticmethod
    def forward(ctx, x, mask, rows):
        ctx.save_for_backward(mask)
        ctx.shape = x.shape
        places = torch.zeros(rows, 2, dtype=torch.long, device=x.device)  # mask.nonzero()
        ctx.rows = rows
        return x[places[:, 0], places[:, 1]]

    @staticmethod
    def backward(ctx, grad):
        places = torch.zeros(ctx.rows, 2, dtype=torch.long, device=grad.device)
        whole = grad.new_zeros(ctx.shape)
        return whole.index_put_((places[:, 0], places[:, 1]), grad, accumulate=True), None, None


class Put(torch.autograd.Function):
    """x[mask] = y, in place."""

    @staticmethod
    def forward(ctx, x, y, mask):
        ctx.save_for_backward(mask)
        ctx.rows = len(y)
        ctx.mark_dirty(x)
        places = torch.zeros(ctx.rows, 2, dtype=torch.long, device=x.device)
        return x.index_put_((places[:, 0], places[:, 1]), y)

    @staticmethod
    def backward(ctx, grad):
        places = torch.zeros(ctx.rows, 2, dtype=torch.long, device=grad.device)
        rest = taken = None
        if ctx.needs_input_grad[0]:
            rest = grad.index_put((places[:, 0], places[:, 1]), grad.new_zeros(()))
        if ctx.needs_input_grad[1]:
            taken = grad[places[:, 0], places[:, 1]]
        return rest, taken, None


def deepstack(self, hidden_states, visual_pos_masks, visual_embeds):
    """Qwen3VLTextModel._deepstack_process."""
    visual_embeds = visual_embeds.to(hidden_states.device, hidden_states.dtype)
    hidden_states = hidden_states.clone()
    local_this = Seen.apply(hidden_states, visual_pos_masks, len(visual_embeds)) + visual_embeds
    hidden_states = Put.apply(hidden_states, local_this, visual_pos_masks)
    return hidden_states


for towers, name in (("qwen3_vl", "Qwen3VLTextModel"), ("qwen3_vl_moe", "Qwen3VLMoeTextModel")):
    getattr(importlib.import_module(f"transformers.models.{towers}.modeling_{towers}"), name)._deepstack_process = deepstack

IMAGES = {}
for whole in ("llava", "llama4", "gemma3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"):
    for word, images in (("two", 2), ("none", 0)):
        CONFIGS[f"{whole}-{word}"], IMAGES[f"{whole}-{word}"] = CONFIGS[whole], images


def whole_of(name):
    """The type of a whole model; None: a part."""
    return CONFIGS[name]["model_type"] if "text_config" in CONFIGS[name] else None


def length(name):
    """LLaVA's image is 49 tokens, and so is Qwen's."""
    if whole_of(name) == "llava" or (whole_of(name) or "").startswith("qwen"):
        return 24 + 49 * IMAGES.get(name, 1)
    return S


FROZEN = {  # all dtypes and attentions of ALL_KINDS
    "gemma3-frozen-vision": ["vision"],
    "clip-frozen-vision": ["vision"],
    "clip-frozen-text": ["text"],
    "gemma3-frozen-text": ["text"],
    "gemma3-frozen-projector": ["projector"],
    "gemma3-frozen-vision-projector": ["vision", "projector"],
    "gemma3-frozen-vision-text": ["vision", "text"],
    "clip-frozen-vision-projector": ["vision", "projector"],
    "clip-frozen-vision-text": ["vision", "text"],
    "llava-frozen-vision": ["vision"],
    "llava-frozen-text": ["text"],
    "llava-frozen-projector": ["projector"],
    "llava-frozen-vision-projector": ["vision", "projector"],
    "llava-frozen-vision-text": ["vision", "text"],
    "llava-last-frozen-vision": ["vision"],
    "llava-layers-frozen-vision": ["vision"],
    "llava-few-frozen-vision": ["vision"],
    "llava-siglip-few-frozen-vision": ["vision"],
    "llama4-frozen-vision": ["vision"],
    "llama4-frozen-text": ["text"],
    "llama4-frozen-projector": ["projector"],
    "llama4-frozen-vision-projector": ["vision", "projector"],
    "llama4-frozen-vision-text": ["vision", "text"],
    "llava-two-frozen-vision": ["vision"],
    "llava-none-frozen-vision-projector": ["vision", "projector"],
    "llama4-none-frozen-vision-projector": ["vision", "projector"],
    "gemma3-none-frozen-vision-projector": ["vision", "projector"],
}
for qwen in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"):
    for frozen in (["vision"], ["text"], ["projector"], ["vision", "projector"], ["vision", "text"]):
        FROZEN["-".join((qwen, "frozen", *frozen))] = frozen
    FROZEN[f"{qwen}-none-frozen-vision-projector"] = ["vision", "projector"]
QV = ["q_proj", "v_proj"]
ADAPTED = {  # targets, parts without adapters, modules_to_save
    "qv": (QV, [], None),
    "all": ("all-linear", [], None),
    "qv-vision": (QV, ["text"], None),
    "qv-text": (QV, ["vision"], None),
    "all-text": ("all-linear", ["vision", "projector"], None),
    "all-projector": ("all-linear", ["vision", "text"], None),
    "qv-text-full": (QV, ["vision"], ["multi_modal_projector"]),
    "all-full": ("all-linear", [], ["multi_modal_projector"]),
    "all-vision": ("all-linear", ["text"], None),
    "seven": (["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], [], None),
}
EXCLUDED = {"vision": r"(vision_tower|vision_model|visual\.(?!merger|deepstack)).*", "text": r"(.*language_model|text_model)\..*",
            "projector": r".*(_projector|_projection|visual\.merger|visual\.deepstack_merger_list)(\..*)?"}


def with_adapters():
    """name-lora-setting, of those that a class has: Llama 4's fused experts are no targets of all-linear."""
    for name in ("llava", "gemma3", "llama4", "clip", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"):
        for word, (targets, _, full) in ADAPTED.items():
            if (targets == "all-linear" and name == "llama4" or full and name == "clip" or word == "seven" and name == "clip"
                    or word == "all-projector" and name == "gemma3" or (word == "qv-vision") == name.startswith("qwen")
                    and word in ("qv-vision", "all-vision")):
                continue
            yield f"{name}-lora-{word}"


def adapt(model, word, dtype, merges):
    """On the meta device.  Adapters are of bf16 in pure bf16, of fp32 under autocast."""
    import peft
    targets, without, full = ADAPTED[word]
    excluded = r"(.*\.)?(" + "|".join(EXCLUDED[part] for part in without) + ")" if without else None
    if full and merges:  # Qwen's name of it
        full = ["merger"] + [f"deepstack_merger_list.{i}" for i in range(2) if hasattr(model.model.visual, "deepstack_merger_list")]
    config = peft.LoraConfig(r=8, target_modules=targets, exclude_modules=excluded, modules_to_save=full)
    torch.set_default_dtype(torch.bfloat16)  # what PEFT casts adapters to, but on the meta device
    model = peft.get_peft_model(model, config, autocast_adapter_dtype=dtype == "autocast")
    torch.set_default_dtype(torch.float32)
    adapters = dict(rank=8, targets=targets, dropout=0.0, dtype="fp32" if dtype == "autocast" else "bf16", base="bf16",
                    peft=peft.__version__)
    return model, without, dict(adapters, **(dict(full=["projector"]) if full else {}))


ALL_KINDS = list(FROZEN)[:3] + ["llava-frozen-vision", "llama4-frozen-vision", "qwen2_5_vl-frozen-vision"]


def part_of(parameter):
    for words, part in (("visual.merger", "projector"), ("visual.deepstack", "projector"), ("visual.", "vision"), ("vision_tower.", "vision"), ("vision_model.", "vision"), ("projector", "projector"),
                        ("projection", "projector"), ("logit_scale", "projector")):
        if words in parameter and not (part == "projector" and ".encoder." in parameter):
            return part
    return "text"


def side(config):
    return config["image_size"] // config["patch_size"]


class Lengths(list):
    """Where chunks begin, as eager code looks at it."""

    def __getitem__(self, key):
        return Lengths(super().__getitem__(key))

    def __sub__(self, other):
        return Lengths(a - b for a, b in zip(self, other))

    def __floordiv__(self, n):
        return Lengths(a // n for a in self)

    def tolist(self):
        return list(self)


class Grid:
    """image_grid_thw, as a whole looks at it."""

    def __init__(self, images):
        self.images = images

    def prod(self, _):
        return Lengths([SIDE * SIDE] * self.images)


def patches_of(config, attn, device, images=B):
    """What Qwen's towers work out from the sizes of images: their code reads values, which fake tensors do not have."""
    with unset_fake_temporarily():
        grid = torch.tensor([[1, SIDE, SIDE]] * images)
        places = vision_utils.get_vision_position_ids(grid, 2)
        starts = {"cu_seqlens": vision_utils.get_vision_cu_seqlens(grid)}
        index = None
        if "window_size" in config:
            index, starts["cu_window_seqlens"] = vision_utils.get_vision_window_index(grid, 2, config["window_size"], 14)
        lists = {key: Lengths(value.tolist()) for key, value in starts.items()}
    more = dict(position_ids=places.to(device), max_seqlen=SIDE * SIDE, grid_thw=grid)
    if "num_position_embeddings" in config:
        with unset_fake_temporarily():
            taps, shares = vision_utils.get_vision_interpolation_indices_and_weights(grid, 7, align_corners=True,
                                                                                    spatial_merge_size=2)
        more.update(interp_indices=taps.to(device), interp_weights=shares.to(device))
    if index is not None:
        more.update(window_index=index.to(device), max_window_seqlen=64)
    for key, value in starts.items():
        more[key] = value.to(device) if attn == "flash" else lists[key]
    rows = torch.zeros(images * SIDE * SIDE, 3 * 2 * 14 * 14, device=device)
    return dict(hidden_states=rows), more


def images_of_qwen(given, beside, config, attn, images):
    """The same for a whole, whose places of words come with the data."""
    rows, more = patches_of(config["vision_config"], attn, "cuda", images)
    given["pixel_values"] = rows["hidden_states"]
    del more["grid_thw"]
    beside.update({"image_" + key: value for key, value in more.items()}, image_grid_thw=Grid(images))


def loss_of(name, model, given, beside):
    whole = whole_of(name)
    if whole and whole.startswith("qwen"):
        return model(**given, **beside, labels=given["input_ids"], use_cache=False).loss
    if whole == "clip":
        return model(**given, return_loss=True).loss
    if whole in ("llava", "llama4"):
        return model(**given, labels=given["input_ids"], use_cache=False).loss
    if whole == "gemma3":  # the processor says which tokens are of an image, so that they see one another
        ids = given["input_ids"]
        return model(**given, labels=ids, token_type_ids=torch.zeros_like(ids), use_cache=False).loss
    if name.startswith("qwen"):
        out = model(**given, **beside)
        return sum([f.mean() for f in getattr(out, "deepstack_features", [])], out.pooler_output.mean())
    out = model(**given)
    return (out.last_hidden_state if name in ("siglip", "llama4-vision") else out.pooler_output).mean()


def step(variant, dtype, attn):
    name, frozen, adapters = variant.split("-frozen")[0].split("-lora")[0], FROZEN.get(variant, []), None
    settings, images = CONFIGS[name], IMAGES.get(name, 1)
    config = transformers.AutoConfig.for_model(**json.loads(json.dumps(settings)))
    attention.install(True)
    stored = torch.bfloat16 if dtype == "bf16" or "-lora-" in variant else torch.float32
    with torch.device("meta"):
        model = operator.attrgetter(CLASSES[whole_of(name) or name])(transformers)._from_config(
            config, dtype=stored, attn_implementation={"flash": "flash_attention_2"}.get(attn, attn))
        if "-lora-" in variant:
            model, frozen, adapters = adapt(model, variant.split("-lora-")[1], dtype, name.startswith("qwen"))
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cuda").train()
        model.tie_weights()
        for parameter, weight in model.named_parameters():
            if adapters is None:
                weight.requires_grad_(part_of(parameter) not in frozen)
        given, beside, vision = {}, {}, settings.get("vision_config", settings)
        if name.startswith("qwen") and whole_of(name):
            given["position_ids"] = torch.zeros(3, B, length(name), dtype=torch.long, device="cuda")
            if images > 0:
                images_of_qwen(given, beside, settings, attn, B * images)
        elif name.startswith("qwen"):
            given, beside = patches_of(settings, attn, "cuda")
        elif name != "clip-text" and images > 0:
            given["pixel_values"] = torch.zeros(B * images, 3, vision["image_size"], vision["image_size"], device="cuda")
            if name.startswith("llama4"):  # whose class does not cast them
                given["pixel_values"] = given["pixel_values"].to(stored)
        if name == "clip-text" or whole_of(name):
            given["input_ids"] = torch.zeros(B, length(name), dtype=torch.long, device="cuda")
        outside = list(model.parameters()) + list(model.buffers()) + list(given.values())
        spans = saved.Spans(model)
        with measure.autocast("cuda", dtype == "autocast"):
            loss = loss_of(name, model, given, beside)
        spans.remove()
        operations = saved.collect(loss, spans, outside)
        kept = saved.storages(operations)
        total = sum(v["bytes"] for v in kept.values())
        rows = [[v["bytes"], v["dtype"], list(v["shape"]), v["savers"][0][0], v["savers"][0][2]] for v in kept.values()]
        del loss, operations, kept
        tracker = Tracker(True)
        tracker.watch(outside, "rest")
        with tracker:
            tracker.enter("forward")
            with measure.autocast("cuda", dtype == "autocast"):
                loss = loss_of(name, model, given, beside)
            tracker.enter("backward")
            loss.backward()
            tracker.enter("after")
    phases = {n: {k: v[k] for k in ("start", "peak", "op", "end") if k in v} for n, v in tracker.phases.items()
              if n != "after"}
    image = 0
    if name.startswith("qwen"):
        image = SIDE ** 2
    elif name != "clip-text":
        image = side(vision) ** 2 + (not name.startswith("siglip"))
    part = dict(part="all") if whole_of(name) else {}
    if images != 1:
        part["images"] = images
    if name.startswith("qwen"):
        part["image"] = [3, 14 * SIDE, 14 * SIDE]
    if frozen:
        part["freeze"] = frozen
    if adapters:
        part["adapters"] = adapters
        part["trainable"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return dict(family="part-" + variant, **part, torch=torch.__version__, transformers=transformers.__version__,
                command="python tests/oracle/golden_parts.py tests/golden/oracle", config=settings, dtype=dtype,
                attention=attn, b=B, s=length(name) if name == "clip-text" or whole_of(name) else image, saved_total_bytes=total,
                parameter_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
                buffer_bytes=sum(p.numel() * p.element_size() for p in model.buffers()),
                input_bytes=sum(t.numel() * t.element_size() for t in given.values()), phases=phases), rows


if __name__ == "__main__":
    for name in [a for a in sys.argv[2:] if a != "--rows"] or [*CONFIGS, *FROZEN, *with_adapters()]:
        for dtype in ("bf16", "fp32", "autocast"):
            for attn in ("eager", "sdpa", "flash"):
                if attn == "flash" and (dtype == "fp32" or name.startswith("llama4")):
                    continue  # no such kernel
                if name in IMAGES and IMAGES[name] == 0:
                    continue  # only what is frozen does without images
                few = name in FROZEN and name not in ALL_KINDS or name in IMAGES or "-lora-" in name
                if few and (dtype, attn) not in (("bf16", "sdpa"), ("autocast", "eager")):
                    continue
                result, rows = step(name, dtype, attn)
                lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in result.items())
                (pathlib.Path(sys.argv[1]) / f"part-{name}-{dtype}-{attn}.json").write_text("{\n" + lines + "\n}\n")
                if "--rows" in sys.argv:
                    print(name, dtype, attn, *rows, sep="\n  ")
