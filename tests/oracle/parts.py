"""Writes tests/golden/parts.jsonl: files with a text and a vision part, and how many parameters transformers' classes make
of each part and of the whole.

usage: parts.py FILE

Nothing is allocated: the classes are built on the meta device.
"""
import json
import pathlib
import sys

import torch
import transformers

TEXT = dict(hidden_size=96, num_attention_heads=6, num_key_value_heads=2, intermediate_size=208, vocab_size=1234,
            num_hidden_layers=3, max_position_embeddings=64)
VISION = dict(hidden_size=72, num_attention_heads=6, intermediate_size=112, num_hidden_layers=2, image_size=48,
              patch_size=12)
CLASSES = {"gemma3": "Gemma3ForConditionalGeneration", "llama4": "Llama4ForConditionalGeneration",
           "llava": "LlavaForConditionalGeneration", "clip": "CLIPModel",
           "qwen3_vl": "Qwen3VLForConditionalGeneration", "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
           "qwen3_5": "Qwen3_5ForConditionalGeneration", "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
           "qwen2_vl": "Qwen2VLForConditionalGeneration", "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration"}


def kind(name, **more):
    return dict(model_type=name, **more)


def configurations():
    siglip, clip = kind("siglip_vision_model", **VISION), kind("clip_vision_model", **VISION)
    gemma = dict(kind("gemma3_text", **TEXT), head_dim=24)
    words = {k: v for k, v in TEXT.items() if k not in ("num_key_value_heads", "vocab_size")}
    for vision in (siglip, {**siglip, "vision_use_head": False}, {**siglip, "num_channels": 1}, VISION):
        yield kind("gemma3", mm_tokens_per_image=4, text_config=gemma, vision_config=vision)
    yield kind("gemma3", mm_tokens_per_image=4, text_config=gemma, vision_config=siglip, tie_word_embeddings=False)
    yield kind("gemma3", text_config={"model_type": "gemma3_text", "num_hidden_layers": 2},
               vision_config={"model_type": "siglip_vision_model", "image_size": 896, "patch_size": 14})
    for text in (kind("llama", **TEXT), kind("llama", vocab_size=32064), kind("qwen2", **TEXT), kind("mistral", **TEXT)):
        for vision in (clip, siglip):
            yield kind("llava", text_config=text, vision_config=vision)
    llava = kind("llava", text_config=kind("llama", **TEXT), vision_config=clip)
    for more in (dict(multimodal_projector_bias=False), dict(vision_feature_layer=[-2, -1]),
                 dict(vision_feature_select_strategy="full")):
        yield {**llava, **more}
    for text in (kind("clip_text_model", **words), {}, {"vocab_size": 1234}):
        for vision in (clip, {}, {"patch_size": 16}):
            yield kind("clip", text_config=text, vision_config=vision)
    yield kind("clip", text_config=kind("clip_text_model", **words), vision_config=clip, projection_dim=40)
    llama = kind("llama4_text", **TEXT, head_dim=24, num_local_experts=4, intermediate_size_mlp=304,
                 interleave_moe_layer_step=2)
    towers = dict(projector_input_dim=88, projector_output_dim=88, vision_output_dim=88, hidden_size=72)
    tower = kind("llama4_vision_model", **{**VISION, "intermediate_size": 288}, **{k: v for k, v in towers.items() if k != "hidden_size"})
    yield kind("llama4", text_config=llama, vision_config=tower)
    yield kind("llama4", text_config=llama, vision_config={k: v for k, v in tower.items() if k != "model_type"})


def qwen():
    """Files with the text's keys at their top, as published, and nested."""
    text = {**TEXT, "num_key_value_heads": 2}
    for name, tower in (("qwen2_vl", dict(embed_dim=72, depth=2, num_heads=6, hidden_size=96, mlp_ratio=2)),
                        ("qwen2_5_vl", dict(hidden_size=72, depth=2, num_heads=6, out_hidden_size=96, intermediate_size=112))):
        for vision in (tower, {**tower, "model_type": name}, {**tower, "model_type": name + "_vision"},
                       {**tower, "spatial_merge_size": 3}, {**tower, "temporal_patch_size": 1}, {**tower, "in_channels": 1},
                       {**tower, "patch_size": 16}, {**tower, "hidden_act": "gelu"}):
            yield kind(name, **text, vision_config=vision)
        for more in ({"tie_word_embeddings": True}, {"tie_word_embeddings": False}, {"use_sliding_window": True}):
            yield kind(name, **text, **more, vision_config=tower)
            yield kind(name, **more, vision_config=tower, text_config=text)
        for key in ("depth", "intermediate_size", "mlp_ratio"):
            if key in tower:
                yield kind(name, **text, vision_config={k: v for k, v in tower.items() if k != key})
        for key in TEXT:
            if key not in ("hidden_size", "num_attention_heads", "num_key_value_heads"):
                yield kind(name, **{k: v for k, v in text.items() if k != key}, vision_config=tower)


def qwen3():
    """Which have their text nested, as published."""
    tower = dict(hidden_size=72, depth=4, num_heads=6, out_hidden_size=96, intermediate_size=112, deepstack_visual_indexes=[0, 2])
    for name, experts in (("qwen3_vl", {}), ("qwen3_vl_moe", dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48))):
        text = dict(TEXT, head_dim=24, **experts)
        for vision in (tower, {**tower, "model_type": name}, {**tower, "model_type": name + "_vision"},
                       {**tower, "spatial_merge_size": 3}, {**tower, "temporal_patch_size": 1}, {**tower, "in_channels": 1},
                       {**tower, "patch_size": 14}, {**tower, "num_position_embeddings": 100}, {**tower, "deepstack_visual_indexes": []},
                       {**tower, "deepstack_visual_indexes": [1, 1, 9]}, {k: v for k, v in tower.items() if k != "depth"},
                       {k: v for k, v in tower.items() if k != "deepstack_visual_indexes"}):
            yield kind(name, text_config=kind(name + "_text", **text), vision_config=vision)
        yield kind(name, text_config=text, vision_config=tower, tie_word_embeddings=True)
        yield kind(name, text_config=kind(name + "_text", **text), vision_config=tower, tie_word_embeddings=False)


def qwen3_5():
    tower = dict(hidden_size=72, depth=4, num_heads=6, out_hidden_size=96, intermediate_size=112)
    words = {k: v for k, v in TEXT.items() if k != "num_hidden_layers"}
    for name, experts in (("qwen3_5", {}), ("qwen3_5_moe", dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48))):
        text = dict(words, head_dim=24, num_hidden_layers=5, **experts)
        linear = dict(linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=12)
        for more in ({}, linear, dict(full_attention_interval=2), dict(layer_types=["full_attention"] * 2 + ["linear_attention"] * 3),
                     dict(linear_conv_kernel_dim=3), dict(attention_bias=True)):
            yield kind(name, text_config=kind(name + "_text", **text, **more), vision_config=tower)
        for vision in ({**tower, "model_type": name}, {**tower, "model_type": name + "_vision"}, {**tower, "spatial_merge_size": 3},
                       {**tower, "num_position_embeddings": 100}, {k: v for k, v in tower.items() if k != "depth"}):
            yield kind(name, text_config=kind(name + "_text", **text), vision_config=vision)
        yield kind(name, text_config=text, vision_config=tower, tie_word_embeddings=True)


def ties():
    """Two flags that disagree, or one that is not there."""
    siglip, clip = kind("siglip_vision_model", **VISION), kind("clip_vision_model", **VISION)
    towers = dict(depth=2, num_heads=6, hidden_size=72, out_hidden_size=96, intermediate_size=112)
    llama4 = dict(model_type="llama4_vision_model", **{**VISION, "intermediate_size": 288},
                  projector_input_dim=88, projector_output_dim=88, vision_output_dim=88)
    text = {**TEXT, "num_key_value_heads": 2}
    of = {"gemma3": (dict(kind("gemma3_text", **text), head_dim=24), siglip),
          "llama4": (kind("llama4_text", **text, head_dim=24, num_local_experts=4, intermediate_size_mlp=304), llama4),
          "llava": (kind("llama", **text), clip),
          "qwen2_vl": (kind("qwen2_vl_text", **text), dict(embed_dim=72, depth=2, num_heads=6, hidden_size=96, mlp_ratio=2)),
          "qwen2_5_vl": (kind("qwen2_5_vl_text", **text), towers | {"out_hidden_size": 96}),
          "qwen3_vl": (kind("qwen3_vl_text", **text, head_dim=24), {**towers, "deepstack_visual_indexes": [0]}),
          "qwen3_5": (kind("qwen3_5_text", **text, head_dim=24), towers)}
    for name, (words, tower) in of.items():
        more = dict(mm_tokens_per_image=4) if name == "gemma3" else {}
        for own, top in ((True, None), (True, False), (False, None), (False, True), (None, True), (None, False)):
            here = {} if top is None else dict(tie_word_embeddings=top)
            there = {} if own is None else dict(tie_word_embeddings=own)
            yield kind(name, **more, text_config={**words, **there}, vision_config=tower, **here)


def size(module):
    return sum(p.numel() for p in {id(p): p for p in module.parameters()}.values())


def whole_of_qwen(settings, config, model):
    model.tie_weights()
    return dict(config=settings, text=size(model) - size(model.model.visual), vision=size(model.model.visual), all=size(model))


def count(settings):
    config = transformers.AutoConfig.for_model(**json.loads(json.dumps(settings)))
    with torch.device("meta"):
        model = getattr(transformers, CLASSES[settings["model_type"]])(config)
        if settings["model_type"].startswith("qwen"):
            return whole_of_qwen(settings, config, model)
        tower = model.vision_model if settings["model_type"] == "clip" else model.model.vision_tower \
            if hasattr(model, "model") else model.vision_model
        if settings["model_type"] == "clip":
            text = model.text_model
        else:
            text = transformers.AutoModelForCausalLM.from_config(config.text_config)
    model.tie_weights()
    tied = settings["model_type"] != "clip" and model.get_output_embeddings().weight is model.get_input_embeddings().weight
    if tied:
        text.lm_head.weight = text.get_input_embeddings().weight
    elif settings["model_type"] != "clip":
        text.lm_head.weight = torch.nn.Parameter(text.lm_head.weight.clone())
    return dict(config=settings, text=size(text), vision=size(tower), all=size(model))


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_text("".join(json.dumps(count(c)) + "\n" for c in (*configurations(), *qwen(), *qwen3(), *qwen3_5(), *ties())))
