"""State-space layers without the kernels of other packages: transformers' own PyTorch code, which runs where those are missing.

usage: state_space_torch.py FOLDER [family ...]

Mamba loops over the tokens, Mamba-2 and the delta rule go chunk by chunk: `--ssm-kernel torch`.  Several lengths, among them
none, one and several whole chunks (of 32 and 64 tokens) and a rest.  Writes FOLDER/torch-<family>-<s>-<dtype>-<attention>-
default.json as golden.py does, torch-lora-... with adapters on the mixers' projections (needs peft), and
FOLDER/steps/torch.json and hybrid.json as step.py does.
"""
import pathlib
import sys

import device  # noqa: F401
import transformers

import describe
import families
import golden
import step

LENGTHS = {"mamba": (3, 7, 40), "jamba": (2, 40), "mamba2": (20, 32, 40, 100), "qwen3_next": (40, 64, 130, 192), "qwen3_5": (40, 130),
           "granitemoehybrid": (20, 40, 100), "granitemoehybrid-dense": (40,), "bamba": (32, 40), "nemotron_h": (32, 40),
           "falcon_h1": (20, 40), "falcon_h1-norm": (40,), "falcon_h1-first": (40,), "lfm2": (2, 40), "lfm2-bias": (40,), "lfm2_moe": (40,)}
ADAPTED = {"mamba": ["in_proj", "x_proj"], "mamba2": ["in_proj"], "jamba": ["in_proj", "x_proj", "out_proj"],
           "qwen3_next": ["in_proj_qkvz", "in_proj_ba", "out_proj"],
           "qwen3_5": ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"],
           "bamba": ["in_proj", "out_proj"],
           "nemotron_h": ["in_proj"]}
COMMAND = "python tests/oracle/state_space_torch.py tests/golden/oracle"


def kernels_are_missing():
    for name in ("mamba_ssm", "causal_conv1d", "fla", "mambapy"):
        assert not transformers.utils.import_utils._is_package_available(name)[0], f"{name} is installed"


def single(family):
    """Attention makes no difference to these layers; Jamba and Qwen3-Next have it elsewhere."""
    for dtype, attention, drop in describe.settings(family):
        yield dtype, attention, drop


def layers(folder, family):
    for s in LENGTHS[family]:
        for dtype, attention, drop in single(family):
            if attention == "flash" or attention == "sdpa" and s != 40:
                continue
            result = golden.record(family, dtype, attention, drop, s=s)
            result.update(command=f"{COMMAND} {family}", ssm_kernel="torch")
            (folder / f"torch-{family}-{s}-{dtype}-{attention}-{drop}.json").write_text(golden.dump(result))
    result = golden.record(family, "bf16", "eager", "default", s=40, b=1)  # of one sequence some copies are views
    result.update(command=f"{COMMAND} {family}", ssm_kernel="torch")
    (folder / f"torch-{family}-single-bf16-eager-default.json").write_text(golden.dump(result))


def with_adapters(folder, family):
    import peft
    attention = "eager" if family.startswith("mamba") else "sdpa"
    for adapters, dtype in (("fp32", "autocast"), ("bf16", "bf16"), ("bf16", "autocast")):
        setting = dict(rank=8, targets=ADAPTED[family], dropout=0.0, dtype=adapters, base="bf16")
        result = golden.record(family, dtype, attention, "0", setting)
        result.update(command=f"{COMMAND} {family}", ssm_kernel="torch", adapters=dict(setting, peft=peft.__version__))
        for key in ("layer", "shared_by_layers", "outside"):
            del result[key]
        (folder / f"torch-lora-{family}-{adapters}-{dtype}-{attention}-0.json").write_text(golden.dump(result))


def steps(family):
    attention = "eager" if family.startswith("mamba") else "sdpa"
    base = dict(family=family, shape="state", attention=attention)
    for precision in ("bf16", "bf16-amp"):
        for recompute in ("none", "full"):
            yield step.Run(**base, precision=precision, recompute=recompute)
    yield step.Run(**base, precision="bf16", recompute="full", recompute_reentrant=True)


if __name__ == "__main__":
    folder, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(LENGTHS)
    kernels_are_missing()
    for name in wanted:
        layers(folder, name)
        if name in ADAPTED:
            with_adapters(folder, name)
    for name, mixed in (("torch", ("mamba", "jamba", "mamba2", "qwen3_next")), ("hybrid", families.MIXED)):
        rows = []
        for run in [run for family in mixed for run in steps(family)]:
            row = step.record(run)
            row["setup"]["ssm_kernel"] = "torch"
            rows.append(row)
        (folder / "steps" / f"{name}.json").write_text(step.dump(step.head(COMMAND), rows))
