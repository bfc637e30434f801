"""Baichuan 2 with rotary positions, whose code is no part of transformers but comes with its weights: written out here.

usage: baichuan.py FOLDER

Writes FOLDER/baichuan-<setting>-<dtype>-<attention>-0.json, as qwen_remote.py does.  The operations are those of
modeling_baichuan.py (baichuan-inc/Baichuan2-7B-Chat): a head whose rows are normed at each forward while it trains, a loss
in the type of the logits with the squares of their maxima beside it, positions looked up in every layer, and one mask for
all layers, which xformers' kernel (here flash) does not look at.
"""
import pathlib
import sys

import device  # noqa: F401
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers.modeling_outputs import CausalLMOutput

import attention
import families
import golden
import measure

RUNS = {
    **{("plain", dtype, attn): None for dtype in ("bf16", "fp32", "autocast") for attn in ("flash", "sdpa")
       if (dtype, attn) != ("fp32", "flash")},
    **{("lora-fp32", dtype, "flash"): dict(rank=8, targets=["W_pack"], dropout=0.05, dtype="fp32", base="bf16")
       for dtype in ("bf16", "autocast")},
    ("full-fp32", "autocast", "flash"): dict(rank=8, targets=["W_pack"], dropout=0.0, dtype="fp32", base="bf16",
                                            full=["embed_tokens", "lm_head"]),
}


class Config(transformers.PretrainedConfig):
    model_type = "baichuan"


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        mean = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(mean + 1e-6)
        if self.weight.dtype != torch.float32:
            x = x.to(self.weight.dtype)
        return self.weight * x


def turned(x):
    left, right = x[..., :x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
    return torch.cat((-right, left), dim=-1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.d = c, c.hidden_size // c.num_attention_heads
        self.W_pack = nn.Linear(c.hidden_size, 3 * c.hidden_size, bias=False)
        self.o_proj = nn.Linear(c.hidden_size, c.hidden_size, bias=False)

    def forward(self, x, mask, places, cos, sin):
        b, s, h = x.shape
        packed = self.W_pack(x)
        packed = packed.unflatten(-1, (3, h)).unsqueeze(0).transpose(0, -2).squeeze(-2)
        q, k, v = (packed[i].view(b, s, -1, self.d).transpose(1, 2) for i in range(3))
        cos, sin = cos[places].unsqueeze(1), sin[places].unsqueeze(1)
        turned_q = (q.float() * cos) + (turned(q.float()) * sin)
        turned_k = (k.float() * cos) + (turned(k.float()) * sin)
        q, k = turned_q.to(q.dtype), turned_k.to(k.dtype)
        del turned_q, turned_k, cos, sin
        if self.c.kernel == "flash_attention_2":
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            y = attention.flash_attn_func(q, k, v, causal=True)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
        y = y.reshape(b, s, h)
        return self.o_proj(y)


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(c.hidden_size, c.intermediate_size, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), MLP(c)
        self.input_layernorm, self.post_attention_layernorm = Norm(c.hidden_size), Norm(c.hidden_size)

    def forward(self, x, *more):
        residual = x
        x = self.self_attn(self.input_layernorm(x), *more)
        x = residual + x
        residual = x
        x = self.mlp(self.post_attention_layernorm(x))
        return residual + x


class Base(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = Norm(c.hidden_size)
        d = c.hidden_size // c.num_attention_heads
        for name in ("cos", "sin"):
            self.register_buffer(name, torch.empty(c.max_position_embeddings, d), persistent=False)

    def forward(self, input_ids):
        b, s = input_ids.shape
        places = torch.arange(s, device=input_ids.device).unsqueeze(0)
        x = self.embed_tokens(input_ids)
        low = torch.finfo(x.dtype).min
        seen = torch.ones(b, s, dtype=torch.bool, device=x.device)
        future = torch.full((s, s), low, device=x.device).triu(1).to(x.dtype)[None, None].expand(b, 1, s, s)
        unseen = 1.0 - seen[:, None, None, :].expand(b, 1, s, s).to(x.dtype)
        mask = unseen.masked_fill(unseen.to(torch.bool), low) + future
        del seen, future, unseen
        cos, sin = self.cos[:s].float(), self.sin[:s].float()
        for layer in self.layers:
            x = layer(x, mask, places, cos, sin)
        return self.norm(x)


class Head(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(c.vocab_size, c.hidden_size))

    def forward(self, x):
        normed = F.normalize(self.weight)
        return F.linear(x, normed)


class BaichuanForCausalLM(transformers.PreTrainedModel):
    config_class = Config

    def __init__(self, c):
        super().__init__(c)
        self.model, self.lm_head = Base(c), Head(c)

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def get_output_embeddings(self):
        return self.lm_head

    def prepare_inputs_for_generation(self, ids, **_):
        return dict(input_ids=ids)

    def tie_weights(self, **_):
        pass

    def forward(self, input_ids=None, labels=None, **_):
        states = self.model(input_ids)
        logits = self.lm_head(states)
        shifted = logits[..., :-1, :].contiguous()
        wanted = labels[..., 1:].contiguous()
        shifted, wanted = shifted.view(-1, self.config.vocab_size), wanted.view(-1)
        largest = shifted.max(-1).values ** 2
        beside = 0.0 * largest.mean()
        return CausalLMOutput(loss=F.cross_entropy(shifted, wanted) + beside, logits=logits)


def settings(c):
    return dict(model_type="baichuan", vocab_size=64000 + c["v"], hidden_size=c["h"], num_hidden_layers=c["L"],
                num_attention_heads=c["a"], intermediate_size=c["f"], max_position_embeddings=c["s"],
                tie_word_embeddings=False)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    families.FAMILIES["baichuan"] = (settings, False)

    def make_config(family, shape, dropout="default", layers=None):
        known = settings(dict(shape, **({"L": layers} if layers else {})))
        return Config(**known), known

    def make_model(config, stored, name, **_):
        config.kernel = name
        return BaichuanForCausalLM(config).to(stored)

    measure.make_config, measure.make_model = make_config, make_model
    for (kind, dtype, attn), setting in RUNS.items():
        result = golden.record("baichuan", dtype, attn, "0", setting)
        result["command"] = "python tests/oracle/baichuan.py tests/golden/oracle"
        if setting:
            result["adapters"] = setting
        for key in ("layer", "shared_by_layers", "outside"):
            del result[key]
        (folder / f"baichuan-{kind}-{dtype}-{attn}-0.json").write_text(golden.dump(result))
