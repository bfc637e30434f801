"""Whole training steps with other optimizers than step.py's, and with the update in backward; what the states take.

Those of bitsandbytes, transformers, torch and lion_pytorch by the name of memplan's key.  galore_torch's and apollo_torch's as the Trainer
makes them of its arguments, with a new projection in every step: the fullest.  Fake CUDA tensors, as in step.py: the kernels of bitsandbytes are not launched, they allocate nothing.  "odd" has sizes
that no block divides, and tensors below and above each library's thresholds.

usage: step_optimizers.py FOLDER        writes FOLDER/optimizers.json
"""
import dataclasses
import warnings

import step  # noqa: F401  (before torch: it loads device.py)
import torch
import transformers

from torch._subclasses.fake_tensor import FakeTensor

warnings.filterwarnings("ignore")
step.SHAPES["odd"] = dict(b=1, s=64, h=396, a=3, kv=1, d=132, f=1205, v=3001, L=2)
step.SHAPES["blocks"] = dict(b=1, s=64, h=512, a=8, kv=4, d=64, f=1408, v=2048, L=2)
TRAINERS = dict(galore="galore_adamw", galore8bit="galore_adamw_8bit", apollo="apollo_adamw")
MODULES = {"": ["attn", "mlp"], "q,v": ["q_proj", "v_proj"], "all-linear,head": "all-linear"}  # optim_target_modules
torch.cuda.synchronize = lambda *_: None


@dataclasses.dataclass(frozen=True)
class Run(step.Run):
    in_backward: bool = False
    embedding_states: str = "8bit"
    rank: int = 128
    targets: str = ""  # "": what memplan has by default


def hidden(model):
    """The matrices that Muon is for, and the rest."""
    ends = {id(m.weight) for m in (model.get_input_embeddings(), model.get_output_embeddings())}
    inner = [p for p in model.parameters() if p.ndim == 2 and id(p) not in ends]
    chosen = {id(p) for p in inner}
    return inner, [p for p in model.parameters() if id(p) not in chosen]


def managed(*shape, dtype, device):
    """Memory that the driver moves, as bitsandbytes' get_paged gives: none of the allocator's."""
    t = torch.empty(shape, dtype=dtype, device="cpu")
    t.is_paged = True
    return t


def without_values():
    """What bitsandbytes makes of values, or where the driver moves it, as tensors of the same size."""
    import bitsandbytes.functional
    f = bitsandbytes.functional
    f.create_dynamic_map = lambda **_: torch.empty(256, device="cuda")  # sorts values
    f.get_paged = managed
    f.fill = f.prefetch_tensor = lambda *_, **__: None


def library(name):
    if name in ("adam8bit", "paged-adam8bit", "lion8bit"):
        import bitsandbytes.optim as o
        without_values()
        return {"adam8bit": o.AdamW8bit, "paged-adam8bit": o.PagedAdamW8bit, "lion8bit": o.Lion8bit}[name]
    if name == "adam4bit":  # its update is one compiled kernel, which is not run
        import torchao.optim
        part = torchao.optim.subclass_4bit
        part.get_qmap_signed = part.get_qmap_unsigned = lambda: (0.0,) * 16  # made of values
        torch.compile = lambda *_, **__: lambda *_, **__: None
        return torchao.optim.AdamW4bit
    if name == "lion":
        import lion_pytorch
        return lion_pytorch.Lion
    return dict(adagrad=torch.optim.Adagrad, rmsprop=torch.optim.RMSprop)[name]


def grouped(run, model):
    inner, rest = hidden(model)
    return [torch.optim.Muon(inner, lr=1e-3),
            torch.optim.AdamW(rest, lr=1e-3, foreach=run.optimizer_impl == "foreach")]


def svd(a, full_matrices=True):
    """CUDA's solver works on a copy (aten, BatchLinearAlgebraLib.cpp: svd_cusolver); its workspace is not known."""
    results = plain_svd(a, full_matrices=full_matrices)
    copy = torch.empty_like(a)
    del copy
    return results


def projecting(run, model):
    """As Trainer.create_optimizer; layer by layer, the hooks are there, and the optimizer does nothing."""
    import apollo_torch.apollo
    import apollo_torch.random_projector as numbers
    import bitsandbytes.functional
    import bitsandbytes.optim
    without_values()
    bitsandbytes.optim.GlobalOptimManager.get_instance().initialize()  # of the runs before
    torch.linalg.svd = svd
    bitsandbytes.functional.optimizer_update_32bit = lambda *_, **__: None  # of small tensors: wants their norms' values
    apollo_torch.apollo.max = lambda a, _: a  # of values
    numbers.stable_randn = lambda shape, seed, device, dtype: torch.randn(shape, device=device, dtype=dtype)
    numbers.next_seed = lambda seed: seed + 1
    arguments = transformers.TrainingArguments(
        output_dir="/tmp", use_cpu=True, optim=TRAINERS[run.optimizer] + ("_layerwise" if run.in_backward else ""),
        optim_args=f"rank={run.rank},update_proj_gap=1", optim_target_modules=MODULES[run.targets])
    made, more = transformers.Trainer.get_optimizer_cls_and_kwargs(arguments, model)
    if run.in_backward:
        return list(more["optimizer_dict"].values())
    return [made(more.pop("params"), **more)]


def optimizers(run, model):
    if run.optimizer in TRAINERS:
        return projecting(run, model)
    everything = list(model.parameters())
    if run.optimizer == "muon":
        return grouped(run, model)
    if run.optimizer == "adafactor":  # as the Trainer makes it
        return [transformers.optimization.Adafactor(everything, lr=1e-3, scale_parameter=False, relative_step=False)]
    if run.optimizer in ("adamw", "momentum", "sgd"):
        return [step.plain_optimizer(run, everything)]
    if "8bit" in run.optimizer:
        import bitsandbytes.optim
        manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
        manager.initialize()
    if run.embedding_states == "fp32":  # transformers/trainer.py, create_optimizer
        made = library(run.optimizer)(everything, lr=1e-3)
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                manager.register_module_override(module, "weight", {"optim_bits": 32})
        return [made]
    impl = dict(foreach=run.optimizer_impl == "foreach") if run.optimizer in ("adagrad", "rmsprop") else {}
    return [library(run.optimizer)(everything, lr=1e-3, **impl)]


def tensors(value):
    """Of a state: tensors, those that a subclass of tensors is made of, a projection's."""
    if isinstance(value, torch.Tensor):
        if not hasattr(value, "__tensor_flatten__") or isinstance(value, FakeTensor):
            return [value]
        return [t for name in value.__tensor_flatten__()[0] for t in tensors(getattr(value, name))]
    return tensors(value.ortho_matrix) if hasattr(value, "ortho_matrix") else []


class Many:
    """Some optimizers as one."""

    def __init__(self, parts):
        self.parts = parts

    def states(self):
        """Bytes on the GPU of storages of more than one number, and how many have one."""
        found = {t.untyped_storage()._cdata: t for part in self.parts for state in part.state.values()
                 for v in state.values() for t in tensors(v) if t.device.type == "cuda"}.values()
        return sum(t.untyped_storage().nbytes() for t in found if t.numel() > 1), sum(t.numel() == 1 for t in found)

    def step(self):
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none=True):
        for part in self.parts:
            part.zero_grad(set_to_none=set_to_none)


class Hooked(Many):
    """Nothing is left for the step."""

    def step(self):
        pass

    zero_grad = lambda self, set_to_none=True: None  # noqa: E731


def update_in_backward(run, model):
    """PyTorch's tutorial: one optimizer a weight, in a hook that runs when its gradient is there."""
    if run.optimizer in TRAINERS:
        return Hooked(projecting(run, model))
    of = {p: step.plain_optimizer(run, [p]) for p in model.parameters()}

    def hook(p):
        of[p].step()
        of[p].zero_grad()
    for p in of:
        p.register_post_accumulate_grad_hook(hook)
    return Hooked(of.values())


class Steps(step.Steps):
    def measure(self, count=3):
        built = []

        def build(run, where="cuda"):
            built[:] = step.plain_build(run, where)
            return tuple(built)

        def make(run, _):
            made = update_in_backward(run, built[0]) if run.in_backward else Many(optimizers(run, built[0]))
            self.tracker.watch([v for part in made.parts for s in part.state.values() for v in s.values()], "states")
            self.made = made  # Adagrad's are there before the first step
            return made
        step.build, step.make_optimizer = build, make
        return super().measure(count)


def setup_of(run):
    more = dict(optimizer_in_backward=True) if run.in_backward else {}
    if "8bit" in run.optimizer and run.optimizer not in TRAINERS:
        more["embedding_states"] = run.embedding_states
    if run.optimizer in TRAINERS:
        more["optimizer_rank"] = run.rank
    if run.targets:
        more["optimizer_targets"] = run.targets
    return dict(step.setup_of(run), **more)


def record(run):
    steps = Steps(run)
    first, later = steps.measure()
    states, scalars = steps.made.states()
    return dict(config=steps.settings, setup=setup_of(run), parameters=steps.parameters, weight_bytes=steps.weights,
                states=states, scalars=scalars, first=first, later=later)


def runs(_):
    for shape in ("wide", "odd", "blocks"):
        for precision in ("bf16", "bf16-amp"):
            for impl in ("foreach", "loop"):
                for optimizer in ("adagrad", "rmsprop"):
                    yield Run(shape=shape, precision=precision, optimizer=optimizer, optimizer_impl=impl)
            for optimizer in ("adafactor", "muon", "lion"):
                yield Run(shape=shape, precision=precision, optimizer=optimizer, optimizer_impl="loop")
            for optimizer in TRAINERS:
                impl = dict(optimizer=optimizer, optimizer_impl="fused" if "8bit" in optimizer else "loop")
                yield Run(shape=shape, precision=precision, **impl)
                yield Run(shape=shape, precision=precision, **impl, rank=24, targets="q,v")
                yield Run(shape=shape, precision=precision, **impl, rank=32, targets="all-linear,head")
                yield Run(shape=shape, precision=precision, **impl, in_backward=True, clip_grad=False)
            for optimizer in ("adam8bit", "paged-adam8bit", "lion8bit", "adam4bit"):
                yield Run(shape=shape, precision=precision, optimizer=optimizer, optimizer_impl="fused")
        for optimizer in ("adam8bit", "paged-adam8bit", "lion8bit"):
            yield Run(shape=shape, optimizer=optimizer, optimizer_impl="fused", embedding_states="fp32")
    yield Run(family="gpt2", shape="wide", optimizer="adam8bit", optimizer_impl="fused", embedding_states="fp32")
    for family, shape in (("llama", "wide"), ("llama", "long"), ("gpt2", "wide")):
        for precision in step.STORED:
            for impl in ("foreach", "fused", "loop"):
                more = dict(family=family, shape=shape, precision=precision, in_backward=True, clip_grad=False, optimizer_impl=impl)
                yield Run(**more)
                yield Run(**more, recompute="full")
            yield Run(family=family, shape=shape, precision=precision, in_backward=True, clip_grad=False, optimizer="momentum")
            yield Run(family=family, shape=shape, precision=precision, in_backward=True, clip_grad=False, optimizer="sgd")


if __name__ == "__main__":
    plain_svd = torch.linalg.svd
    step.plain_build, step.plain_optimizer = step.build, step.make_optimizer
    step.main_of(["optimizers"], runs, record, "python tests/oracle/step_optimizers.py tests/golden/oracle/steps")
