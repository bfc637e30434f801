"""What autograd keeps for backward: a walk of the graph behind a loss, deduplicated by storage."""
import torch


def _saved_of(node):
    """(attribute, tensor) pairs that one backward node holds."""
    if hasattr(node, "saved_tensors") and not any(n.startswith("_saved_") for n in dir(node)):
        for i, t in enumerate(node.saved_tensors):
            if t is not None:
                yield f"ctx{i}", t
        return
    for name in dir(node):
        if not name.startswith("_saved_"):
            continue
        value = getattr(node, name)
        for t in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(t, torch.Tensor):
                yield name[len("_saved_"):], t


class Spans:
    """Remembers which autograd sequence numbers each module's forward produced."""

    def __init__(self, model):
        self.spans, self.handles = [], []
        for name, module in model.named_modules():
            self.handles.append(module.register_forward_pre_hook(self._enter(name)))
            self.handles.append(module.register_forward_hook(self._leave(name), always_call=True))
        self.open = []

    def _enter(self, name):
        def hook(*_):
            self.open.append((name, torch.autograd._get_sequence_nr()))
        return hook

    def _leave(self, name):
        def hook(*_):
            entered, start = self.open.pop()
            assert entered == name
            self.spans.append((start, torch.autograd._get_sequence_nr(), name))
        return hook

    def module_of(self, sequence):
        inside = [(end - start, -len(name), name) for start, end, name in self.spans if start <= sequence < end]
        return min(inside)[2] if inside else ""

    def remove(self):
        for handle in self.handles:
            handle.remove()


def nodes_behind(loss):
    """Backward nodes in the order of their forward operations, without the gradient accumulators."""
    seen, stack = {}, [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen or "AccumulateGrad" in node.name():
            continue
        seen[node] = node._sequence_nr()
        stack.extend(n for n, _ in node.next_functions)
    return sorted(seen, key=seen.get)


def collect(loss, spans, exclude):
    """List of operations: dict(op, module, saved=[(attribute, storage key, tensor)]); excluded storages are left out."""
    skip = {t.untyped_storage()._cdata for t in exclude}
    operations = []
    for node in nodes_behind(loss):
        saved = []
        for attribute, t in _saved_of(node):
            key = t.untyped_storage()._cdata
            if key in skip or (t.device.type == "cpu" and t.dim() == 0 and t.dtype in (torch.float64, torch.int64)):
                continue
            saved.append((attribute, key, t))
        operations.append(dict(op=node.name().removesuffix("0").removesuffix("Backward"), saved=saved,
                               module=spans.module_of(node._sequence_nr())))
    return operations


def storages(operations):
    """{key: dict(bytes, dtype, shape, savers=[(op, attribute, module)])} in the order of the first saver."""
    found = {}
    for operation in operations:
        for attribute, key, t in operation["saved"]:
            entry = found.setdefault(key, dict(bytes=t.untyped_storage().nbytes(), shape=tuple(t.shape),
                                               dtype=str(t.dtype).removeprefix("torch."), savers=[]))
            entry["savers"].append((operation["op"], attribute, operation["module"]))
    return found
