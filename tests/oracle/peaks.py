"""Compares the tracker's live bytes with the allocator's own: one step on real CPU tensors, no dispatch mode, fp32.

Three columns per phase: allocator events of a real step (torch.profiler), the tracker over the same step, and the tracker
over fake CUDA tensors.  The first two must agree but for SLACK: Python numbers that CPU keeps as one-element tensors (on
CUDA too they lie in host memory) and the per-thread sums of the CPU kernel of layer_norm's backward.  The third may differ
where CUDA has other kernels (softmax's backward, dropout, attention).  sdpa takes the math kernel here.

usage: peaks.py [family ...]
"""
import sys

import device  # noqa: F401
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch._C._profiler import _EventType

import describe
import families
import measure
from tracker import Tracker

MARK = 100003  # bytes of the first phase's mark: an allocation of a size nothing else has, freed at once
SLACK = 2048


class Allocations:
    """Stands in for Tracker: the same phases, from the profiler's memory events."""

    def __init__(self, fake):
        self.names, self.start = [], 0

    def watch(self, tensors, _):
        self.start = sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}.values())

    def enter(self, phase):
        torch.empty(MARK + 2 * len(self.names), dtype=torch.uint8)
        self.names.append(phase)

    def __enter__(self):
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True,
                                              record_shapes=False)
        self.profile.__enter__()

    def __exit__(self, *error):
        self.profile.__exit__(*error)
        events, pending = [], list(self.profile.profiler.kineto_results.experimental_event_tree())
        while pending:
            event = pending.pop()
            pending += event.children
            if event.tag == _EventType.Allocation:
                events.append((event.start_time_ns, event.extra_fields.alloc_size))
        events.sort(key=lambda e: e[0])
        self.phases, now, phase = {}, self.start, None
        for _, size in events:
            k = size - MARK
            if 0 <= k < 2 * len(self.names) and k % 2 == 0:
                if phase:
                    self.phases[phase]["end"] = now
                phase = self.names[k // 2]
                self.phases[phase] = dict(start=now, peak=now)
            elif not -2 * len(self.names) < size + MARK <= 0:
                now += size
                self.phases[phase]["peak"] = max(self.phases[phase]["peak"], now)


def compare(family, attn):
    shape, bad = families.SHAPES["small"], 0
    with sdpa_kernel(SDPBackend.MATH):
        real, tracked = (measure.Run(family, shape, "fp32", attn, "0", where="cpu", backward=True, observer=o).tracker
                         for o in (Allocations, Tracker))
    cuda = measure.Run(family, shape, "fp32", attn, "0", backward=True).tracker
    for name, phase in real.phases.items():
        if name == "after":
            continue
        for what in ("peak", "end"):
            row = [t.phases[name][what] for t in (real, tracked, cuda)]
            fails = abs(row[0] - row[1]) > SLACK
            bad += fails
            print(f"{family:16} {attn:6} {name:19} {what:4} allocator {row[0]:8} tracker {row[1] - row[0]:+8} "
                  f"fake cuda {row[2] - row[0]:+8} {'<<< ' + tracked.phases[name]['op'] if fails else ''}",
                  flush=True)
    return bad


if __name__ == "__main__":
    wrong = 0
    for name in sys.argv[1:] or families.FAMILIES:
        for attn in ("eager", "sdpa"):
            if describe.supports(name, attn):
                wrong += compare(name, attn)
    print("mismatches", wrong)
    sys.exit(wrong != 0)
