"""A second opinion on programs: runs them with numbers, bounded queues and adversarial schedulers.

Written from the description of the runtimes alone; shares nothing with the verifier. `matters(program)` is the first
way in which a program fails, or None.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from latecomer.schedules.program import Program, Threadblock

CAPACITY = {"Simple": 2, "LL": 8, "LL128": 8}
# With neither flag, the runtime that reads only one takes the file for out-of-place calls.
MODES = {(True, True): (True, False), (True, False): (True,), (False, True): (False,), (False, False): (False,)}
RECEIVING = ("r", "rcs", "rrc", "rrs", "rrcs")
SENDING = ("s", "rcs", "rrs", "rrcs")


class Failure(Exception):
    pass


def load(program: Program) -> None:
    """What a parser refuses, and what crashes once connections are made."""
    if program.ranks < 1 or program.chunks < 1 or not 1 <= program.channels <= 32:
        raise Failure("root")
    if program.max_bytes and (program.min_bytes or 0) > program.max_bytes:
        raise Failure("never selected")
    if sorted(g.id for g in program.gpus) != list(range(program.ranks)):
        raise Failure("gpus")
    for gpu in program.gpus:
        if sorted(t.id for t in gpu.threadblocks) != list(range(len(gpu.threadblocks))):
            raise Failure("tb ids")
        seen = set()
        for tb in gpu.threadblocks:
            if not 0 <= tb.chan < program.channels or gpu.id in (tb.send, tb.recv):
                raise Failure("chan or peer")
            for way, peer in (("send", tb.send), ("recv", tb.recv)):
                if peer >= program.ranks or (peer >= 0 and (way, peer, tb.chan) in seen):
                    raise Failure("peer or connection")
                seen.add((way, peer, tb.chan))
            _load_steps(tb, {"i": gpu.i_chunks, "o": gpu.o_chunks, "s": gpu.s_chunks})


def _load_steps(tb: Threadblock, sizes: dict[str, int]) -> None:
    for k, step in enumerate(tb.steps):
        before = tb.steps[k - 1] if k else None
        if before is not None and before.type == "nop" != step.type and step.depid < 0:
            raise Failure("nop chain")
        if (step.type in RECEIVING and tb.recv < 0) or (step.type in SENDING and tb.send < 0):
            raise Failure("no peer")
        if step.type != "nop" and not 1 <= step.cnt <= 71:
            raise Failure("cnt")
        reads = step.type not in ("r", "rcs", "nop")
        writes = step.type not in ("s", "rrs", "nop")
        for used, buffer, offset in ((reads, step.srcbuf, step.srcoff), (writes, step.dstbuf, step.dstoff)):
            if used and not 0 <= offset <= sizes[buffer] - step.cnt:
                raise Failure("bounds")


class Machine:
    """One call. `pick(runnable)` chooses who makes the next move."""

    def __init__(self, program: Program, in_place: bool, per_message: int, seed: int) -> None:
        self.p, self.per_message, self.in_place = program, per_message, in_place
        numbers = random.Random(seed)
        n, k = program.ranks, program.chunks
        self.inputs = {r: [numbers.getrandbits(40) for _ in range(k)] for r in range(n)}
        self.memory: dict[int, dict[str, list[int]]] = {}
        for gpu in program.gpus:
            junk = [numbers.getrandbits(60) for _ in range(k)]
            i = list(self.inputs[gpu.id])
            self.memory[gpu.id] = {"i": i, "o": i if in_place else junk,
                                   "s": [numbers.getrandbits(60) for _ in range(gpu.s_chunks)]}
        self.blocks = [(g.id, t) for g in program.gpus for t in g.threadblocks]
        self.at = [0] * len(self.blocks)
        self.part = [0] * len(self.blocks)
        self.pending: list[Any] = [None] * len(self.blocks)
        self.posts = {(g, t.id): -1 for g, t in self.blocks}
        self.queue: dict[tuple[int, int, int], deque[list[int]]] = {}

    def can(self, b: int) -> bool:
        gpu, tb = self.blocks[b]
        if self.at[b] >= len(tb.steps):
            return False
        step = tb.steps[self.at[b]]
        if step.depid >= 0 and step.deps >= 0 and self.posts.get((gpu, step.depid), -1) < step.deps:
            return False
        if self.pending[b] is not None:
            return True
        room = step.type not in SENDING or len(self.queue.get((gpu, tb.send, tb.chan), ())) < CAPACITY[self.p.protocol]
        data = step.type not in RECEIVING or bool(self.queue.get((tb.recv, gpu, tb.chan)))
        return room and data  # a forwarding step waits for both before it frees its slot

    def move(self, b: int) -> None:
        gpu, tb = self.blocks[b]
        step = tb.steps[self.at[b]]
        low = self.part[b] * self.per_message
        count = min(self.per_message, step.cnt - low)
        mem = self.memory[gpu]
        if step.type != "nop" and self.pending[b] is None:  # first half: take and read
            data = [0] * count
            if step.type in RECEIVING:
                data = self.queue[tb.recv, gpu, tb.chan].popleft()
                if len(data) != count:
                    raise Failure("lengths")
            if step.type in ("s", "cpy", "re", "rrc", "rrs", "rrcs"):
                data = [x + mem[step.srcbuf][step.srcoff + low + c] for c, x in enumerate(data)]
            if step.type == "re":
                data = [x + mem[step.dstbuf][step.dstoff + low + c] for c, x in enumerate(data)]
            self.pending[b] = data
            if step.type not in ("s", "r", "rcs"):
                return  # others may move between what it read and what it writes
        if step.type != "nop":  # second half: write and send
            data = self.pending[b]
            self.pending[b] = None
            if step.type in ("r", "cpy", "re", "rcs", "rrc", "rrcs"):
                for c, x in enumerate(data):
                    mem[step.dstbuf][step.dstoff + low + c] = x
            if step.type in SENDING:
                self.queue.setdefault((gpu, tb.send, tb.chan), deque()).append(data)
        self.part[b] += 1
        if self.part[b] * self.per_message >= step.cnt or step.type == "nop":
            if step.hasdep and step.type != "nop":
                self.posts[gpu, tb.id] = self.at[b]
            self.at[b] += 1
            self.part[b] = 0

    def run(self, pick: Callable[[list[int]], int]) -> None:
        while True:
            runnable = [b for b in range(len(self.blocks)) if self.can(b)]
            if not runnable:
                break
            self.move(pick(runnable))
        if any(self.at[b] < len(t.steps) for b, (_, t) in enumerate(self.blocks)):
            raise Failure("hang")
        if any(self.queue.values()):
            raise Failure("left over")
        n, k = self.p.ranks, self.p.chunks
        for r in range(n):
            want = [sum(self.inputs[q][c] for q in range(n)) for c in range(k)]
            if self.memory[r]["o"] != want:
                raise Failure("wrong result")
            if not self.in_place and self.memory[r]["i"] != self.inputs[r]:
                raise Failure("send buffer changed")


def schedulers(program: Program, rng: random.Random, runs: int) -> Iterator[Callable[[list[int]], int]]:
    """Fixed priorities, at random; then, per pair of threadblocks of a gpu, one held back and the other hurried."""
    blocks = [(g.id, t.id) for g in program.gpus for t in g.threadblocks]
    for _ in range(runs):
        order = list(range(len(blocks)))
        rng.shuffle(order)
        yield lambda runnable, order=order: max(runnable, key=order.__getitem__)  # type: ignore[misc]
    for slow, (gpu, _) in enumerate(blocks):
        for fast, (other, _) in enumerate(blocks):
            if slow != fast and gpu == other:
                yield lambda runnable, slow=slow, fast=fast: max(  # type: ignore[misc]
                    runnable, key=lambda b: (b != slow, b == fast, rng.random()))


def matters(program: Program, seed: int = 0, runs: int = 8) -> str | None:
    """How the program fails for some timing, size or kind of call it serves; None if no run shows any."""
    try:
        load(program)
        rng = random.Random(seed)
        for in_place in MODES[bool(program.in_place), bool(program.out_of_place)]:
            for per_message in (71, 1):
                for pick in schedulers(program, rng, runs):
                    Machine(program, in_place, per_message, seed).run(pick)
    except Failure as failure:
        return str(failure)
    return None
