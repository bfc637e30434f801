"""Writes tests/golden/oracle/<t5 ...>-<dtype>-<attention>-<dropout>.json: saved bytes and peaks of a step of two stacks.

usage: seq2seq.py FOLDER [name ...]
"""
import json
import pathlib
import sys

import device  # noqa: F401
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

import attention
import families
import measure
import saved
from tracker import Tracker

LENGTHS = {"t5-odd": (3, 37, 21), "t5-one": (1, 40, 24)}  # sequences, places of source and target: rows not aligned; one
T5 = dict(d_model=96, num_heads=6, d_kv=16, d_ff=208, vocab_size=1234, num_layers=3, num_decoder_layers=2)
NAMES = {
    "t5": (dict(model_type="t5", feed_forward_proj="relu", tie_word_embeddings=True, **T5), ("eager", "sdpa")),
    "t5-gated": (dict(model_type="t5", feed_forward_proj="gated-gelu", tie_word_embeddings=True, **T5), ("eager", "sdpa")),
    "t5-odd": (dict(model_type="t5", **T5), ("sdpa",)),
    "t5-one": (dict(model_type="t5", **T5), ("sdpa",)),
    "mt5": (dict(model_type="mt5", tie_word_embeddings=True, **T5), ("sdpa",)),
    "umt5": (dict(model_type="umt5", tie_word_embeddings=True, **T5), ("eager", "sdpa")),
    "bart": (dict(model_type="bart", d_model=96, encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=208,
                  decoder_ffn_dim=208, vocab_size=1234, encoder_layers=3, decoder_layers=2, max_position_embeddings=64,
                  activation_dropout=0.1, attention_dropout=0.1), ("eager",)),
}


def step(name, dtype, kind, dropout):
    settings, _ = NAMES[name]
    b, source, target = LENGTHS.get(name, (3, 40, 24))
    config = transformers.AutoConfig.for_model(**settings)
    config.use_cache = False
    config.decoder_start_token_id = 0
    if dropout == "0":
        families.without_dropout(config)
        config.dropout_rate = 0.0
    attention.install(True)
    stored = torch.bfloat16 if dtype == "bf16" else torch.float32
    with torch.device("meta"):
        model = transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[type(config)]._from_config(
            config, dtype=stored, attn_implementation={"flash": "flash_attention_2"}.get(kind, kind))
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cuda")
        model.tie_weights()
        model.train()
        ids = torch.zeros(b, source, dtype=torch.long, device="cuda")
        labels = torch.zeros(b, target, dtype=torch.long, device="cuda")
        outside = list(model.parameters()) + list(model.buffers()) + [ids, labels]
        spans = saved.Spans(model)
        with measure.autocast("cuda", dtype == "autocast"):
            loss = model(input_ids=ids, labels=labels).loss
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
                loss = model(input_ids=ids, labels=labels).loss
            tracker.enter("backward")
            loss.backward()
            tracker.enter("after")
    phases = {n: {k: v[k] for k in ("start", "peak", "op", "end") if k in v} for n, v in tracker.phases.items() if n != "after"}
    storages = {p.untyped_storage()._cdata: p.untyped_storage().nbytes() for p in model.parameters()}
    return dict(family=name, torch=torch.__version__, transformers=transformers.__version__,
                command="python tests/oracle/seq2seq.py tests/golden/oracle", config=settings, dtype=dtype, attention=kind,
                b=b, s=source, decoder_s=target, saved_total_bytes=sum(v["bytes"] for v in kept.values()),
                parameter_bytes=sum(storages.values()),
                buffer_bytes=sum(p.numel() * p.element_size() for p in model.buffers()),
                input_bytes=8 * b * (source + target), phases=phases)


if __name__ == "__main__":
    wanted = [n for n in sys.argv[2:] if n in NAMES] or NAMES
    for name in wanted:
        for kind in NAMES[name][1]:
            for dtype in ("bf16", "fp32", "autocast"):
                if kind == "flash" and dtype == "fp32":
                    continue
                for dropout in ("default", "0"):
                    path = pathlib.Path(sys.argv[1]) / f"{name}-{dtype}-{kind}-{dropout}.json"
                    rows = step(name, dtype, kind, dropout).items()
                    path.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in rows) + "\n}\n")
