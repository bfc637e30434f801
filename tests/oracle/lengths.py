"""What the caching allocator reserves when samples differ in length: memplan's own traces, one length after another.

usage: lengths.py MEMPLAN MODEL LONGEST [option ...]     the options are memplan's; prints GiB for one length, and for many

The allocator is that of c10/cuda/CUDACachingAllocator.cpp with its default settings, as src/fold/allocator.c has it; the
many lengths are 80 draws from a log-normal distribution (seed 2), longer ones left out.
"""
import bisect
import csv
import io
import random
import subprocess
import sys

MIB, GIB = 1 << 20, 1 << 30
SMALL, LARGE = 0, 1


class Block:
    def __init__(self, size, pool):
        self.size, self.pool, self.before, self.after, self.free = size, pool, None, None, False


class Allocator:
    def __init__(self):
        self.free = {SMALL: [], LARGE: []}
        self.reserved, self.blocks = 0, {}

    def put(self, block):
        block.free = True
        bisect.insort(self.free[block.pool], (block.size, id(block), block))

    def take(self, block):
        row = self.free[block.pool]
        assert row.pop(bisect.bisect_left(row, (block.size, id(block))))[2] is block

    def segment(self, size, pool):
        size = 2 * MIB if pool == SMALL else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        self.reserved += size
        return Block(size, pool)

    def split(self, block, size):
        rest = Block(block.size - size, block.pool)
        rest.before, rest.after, block.after, block.size = block, block.after, rest, size
        if rest.after:
            rest.after.before = rest
        self.put(rest)

    def alloc(self, key, size):
        size = max(512, -(-size // 512) * 512)
        pool = SMALL if size <= MIB else LARGE
        row = self.free[pool]
        place = bisect.bisect_left(row, (size,))
        block = row.pop(place)[2] if place < len(row) else self.segment(size, pool)
        if block.size - size >= (512 if pool == SMALL else MIB + 1):
            self.split(block, size)
        block.free = False
        self.blocks[key] = block

    def join(self, first, second):
        first.size += second.size
        first.after = second.after
        if second.after:
            second.after.before = first

    def release(self, key):
        block = self.blocks.pop(key)
        if block.before and block.before.free:
            self.take(block.before)
            self.join(block.before, block)
            block = block.before
        if block.after and block.after.free:
            self.take(block.after)
            self.join(block, block.after)
        self.put(block)


def trace(command, length):
    """[at rest], [the step]: (event, id, bytes)."""
    text = subprocess.run([*command, "--seq-len", str(length), "--format", "csv"], check=True, capture_output=True,
                          text=True).stdout
    rest, step = [], []
    for row in csv.DictReader(io.StringIO(text)):
        here = rest if row["phase"] == "rest" and row["event"] == "alloc" and not step else step
        here.append((row["event"], int(row["id"]), int(row["bytes"])))
    return rest, step


def reserved(command, lengths):
    allocator, known = Allocator(), {}
    for turn, length in enumerate(lengths):
        rest, step = known.setdefault(length, None) or trace(command, length)
        known[length] = rest, step
        for event, number, size in rest if turn == 0 else []:
            allocator.alloc(("rest", number), size)
        alive = set()
        for event, number, size in step:
            if event == "alloc":
                allocator.alloc((turn, number), size)
                alive.add(number)
            elif number in alive:
                allocator.release((turn, number))
                alive.discard(number)
        for number in alive:
            allocator.release((turn, number))
    return allocator.reserved / GIB


if __name__ == "__main__":
    program, model, longest = sys.argv[1], sys.argv[2], int(sys.argv[3])
    command = [program, "trace", model, *sys.argv[4:]]
    random.seed(2)
    drawn = (int(random.lognormvariate(7.8, 0.75)) for _ in range(10 ** 6))
    many = [n for n in drawn if 8 <= n <= longest][:80]
    print(f"{longest} tokens {reserved(command, [longest] * 4):.2f} GiB, up to that {reserved(command, many):.2f} GiB")
