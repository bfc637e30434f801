"""Whole training steps of two stacks: what step.py does, of T5 and UMT5; checkpoints of both kinds.

usage: seq2seq_steps.py FOLDER           writes FOLDER/seq2seq.json
"""
import dataclasses

import device  # noqa: F401  (before torch)
import torch
import transformers

import attention
import measure
import seq2seq
import step

SIZES = dict(d_model=256, num_heads=4, d_kv=64, d_ff=768, num_layers=4, num_decoder_layers=4)
SHAPES = {  # "long": activations; "words": mostly one table, that three things use
    "long": dict(b=4, source=256, target=128, vocab=2048),
    "words": dict(b=1, source=64, target=32, vocab=16384),
}


@dataclasses.dataclass(frozen=True)
class Run(step.Run):
    family: str = "t5"
    shape: str = "long"
    attention: str = "sdpa"


def build(run, where="cuda"):
    settings = {**seq2seq.NAMES[run.family][0], **SIZES, "vocab_size": SHAPES[run.shape]["vocab"]}
    config = transformers.AutoConfig.for_model(**settings)
    config.use_cache = False
    config.decoder_start_token_id = 0
    attention.install(where == "cuda")
    with torch.device("meta"):
        model = transformers.AutoModelForSeq2SeqLM.from_config(config, dtype=step.STORED[run.precision],
                                                               attn_implementation=run.attention)
    if run.recompute == "full":
        model.gradient_checkpointing_enable(dict(use_reentrant=run.recompute_reentrant, preserve_rng_state=False))
    return model, settings


def materialize(run, model, where):
    model.to_empty(device=where)
    model.tie_weights()
    model.train()
    c = SHAPES[run.shape]
    return torch.zeros(c["b"], c["source"], dtype=torch.long, device=where)


class Steps(step.Steps):
    def follow(self, model, optimizer, ids, count):
        c = SHAPES[self.run.shape]
        self.labels = torch.zeros(c["b"], c["target"], dtype=torch.long, device=ids.device)
        self.given = dict(input_ids=ids, labels=self.labels)
        self.tracker.watch(list(self.given.values()), "ids")
        return super().follow(model, optimizer, ids, count)

    def micro_batch(self, model, ids, index):
        self.enter("forward", index)
        with measure.autocast(self.where, self.run.precision == "bf16-amp"):
            loss = model(**self.given).loss
        self.enter("backward", index)
        (loss / self.run.grad_accum).backward()


def record(run):
    attention.last_choice.clear()
    steps = Steps(run)
    first, later = steps.measure()
    kernels = set(attention.last_choice)
    assert kernels == ({"efficient"} if run.attention == "sdpa" else set()), kernels
    c = SHAPES[run.shape]
    step.SHAPES[run.shape] = dict(b=c["b"], s=c["source"])
    setup = dict(step.setup_of(run), attention=run.attention, decoder_seq_len=c["target"])
    return dict(config=steps.settings, setup=setup, parameters=steps.parameters, weight_bytes=steps.weights, first=first,
                later=later)


def runs(_):
    for family in ("t5", "umt5"):
        for attn in ("sdpa", "eager"):
            for precision in ("bf16", "bf16-amp"):
                base = dict(family=family, attention=attn, precision=precision)
                yield Run(**base)
                yield Run(**base, recompute="full")
                yield Run(**base, recompute="full", recompute_reentrant=True)
    for family in ("t5", "t5-gated", "umt5"):
        for precision in step.STORED:
            yield Run(family=family, shape="words", precision=precision)
            yield Run(family=family, shape="words", precision=precision, recompute="full")
    yield Run(shape="words", grad_accum=2)


if __name__ == "__main__":
    step.build, step.materialize = build, materialize
    step.main_of(["seq2seq"], runs, record, "python tests/oracle/seq2seq_steps.py tests/golden/oracle/steps")
