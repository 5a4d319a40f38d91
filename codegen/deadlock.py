"""Can a program get stuck? Runs it with bounded queues, counting messages only.

No step chooses: each threadblock has one next step, each connection one sender and one receiver. So either
every interleaving ends or none does, and one run decides. A step of `cnt` chunks is ⌈cnt/batch⌉ messages,
`batch` being how many chunks a queue's slot holds; the larger the message the fewer, and a program that
ends with one chunk a slot ends with more (run it with one, and take each step's last message as its only
one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latecomer.codegen.graph import CAPACITY, posted
from latecomer.schedules.program import RECEIVES, SENDS, Program, Step, Threadblock

SLOT_BYTES = {"Simple": 2 * 2**20, "LL": 32 * 2**10, "LL128": 9 * 2**16}
"""What a message in a queue holds with the runtimes' default buffers: bytes of data."""


def batch(program: Program, size_bytes: int) -> int:
    """Chunks in one message when the call moves `size_bytes`."""
    chunk = -(-size_bytes // max(1, program.chunks))
    return max(1, min(71, SLOT_BYTES[program.protocol] // max(1, chunk)))


@dataclass(frozen=True)
class Stuck:
    """Where a program stands when nothing moves: a threadblock's (gpu, tb, step), and what it waits for."""

    chain: tuple[tuple[int, int, int], ...]
    reasons: tuple[str, ...]
    circular: bool

    def __str__(self) -> str:
        links = [f"gpu {g}/tb {t}/step {s} {why}" for (g, t, s), why in zip(self.chain, self.reasons, strict=True)]
        return ", which ".join(links) + (" (a circle)" if self.circular else "")


class _Block:
    """A threadblock as it runs; `s` is its step, `moved` the messages of that step done so far."""

    def __init__(self, gpu: int, block: Threadblock) -> None:
        self.gpu, self.block = gpu, block
        self.posted = posted(block.steps)
        self.s = self.moved = 0

    def step(self) -> Step | None:
        return self.block.steps[self.s] if self.s < len(self.block.steps) else None


class _Run:
    def __init__(self, program: Program, capacity: int, per_message: int) -> None:
        self.capacity, self.per_message = capacity, per_message
        self.blocks = [_Block(gpu.id, tb) for gpu in program.gpus for tb in gpu.threadblocks]
        self.at = {(b.gpu, b.block.id): b for b in self.blocks}
        self.sender = {(b.gpu, b.block.send, b.block.chan): b for b in self.blocks if b.block.send >= 0}
        self.receiver = {(b.block.recv, b.gpu, b.block.chan): b for b in self.blocks if b.block.recv >= 0}
        self.made = dict.fromkeys([*self.sender, *self.receiver], 0)
        self.used = dict(self.made)
        self.waiting: dict[tuple[int, int], list[_Block]] = {}

    def run(self) -> None:
        work = list(self.blocks)
        while work:
            self._advance(work.pop(), work)

    def _advance(self, b: _Block, work: list[_Block]) -> None:
        while (step := b.step()) is not None:
            if not self._met(b, step):
                self.waiting.setdefault((b.gpu, step.depid), []).append(b)
                return
            messages = -(-step.cnt // self.per_message)
            if not self._move(b, step, max(1, messages), work):
                return
            b.s, b.moved = b.s + 1, 0
            if step.hasdep:
                work += self.waiting.pop((b.gpu, b.block.id), [])

    def _met(self, b: _Block, step: Step) -> bool:
        if step.depid < 0 or step.deps < 0:
            return True
        other = self.at.get((b.gpu, step.depid))
        if other is None:
            return False
        ends = other.posted[step.deps] if step.deps < len(other.posted) else None
        return ends is not None and other.s > ends

    def _move(self, b: _Block, step: Step, messages: int, work: list[_Block]) -> bool:
        """Move what can be moved; True when the step is done.

        A step that forwards waits for data and for room before it moves anything, as the kernels do: its incoming slot
        stays taken until it can send.
        """
        into = (b.block.recv, b.gpu, b.block.chan) if step.type in RECEIVES else None
        out = (b.gpu, b.block.send, b.block.chan) if step.type in SENDS else None
        while (
            b.moved < messages
            and (into is None or self.made[into] > self.used[into])
            and (out is None or self.made[out] - self.used[out] < max(1, self.capacity))
        ):
            b.moved += 1
            if into is not None:
                self.used[into] += 1
                if into in self.sender:
                    work.append(self.sender[into])
            if out is not None:
                self.made[out] += 1
                if out in self.receiver:
                    work.append(self.receiver[out])
            if into is None and out is None:
                return True
        if b.moved < messages:
            return False
        return out is None or self.capacity > 0 or self.made[out] == self.used[out]

    def blocked_on(self, b: _Block) -> tuple[str, _Block | None]:
        step = b.step()
        assert step is not None
        if not self._met(b, step):
            other = self.at.get((b.gpu, step.depid))
            return f"waits for step {step.deps} of tb {step.depid}", other
        into = (b.block.recv, b.gpu, b.block.chan)
        messages = max(1, -(-step.cnt // self.per_message))
        if step.type in RECEIVES and b.moved < messages and self.made[into] == self.used[into]:
            return f"waits for data from gpu {b.block.recv}", self.sender.get(into)
        out = (b.gpu, b.block.send, b.block.chan)
        return f"waits for gpu {b.block.send} to take what was sent", self.receiver.get(out)


def stuck(program: Program, capacity: int | None = None, per_message: int = 1) -> Stuck | None:
    """None if the program ends; else the chain of waits, up to where it closes. O(messages).

    `capacity`: messages in flight per connection (the protocol's by default; 0: a send waits for its
    receive). `per_message`: see `batch`.
    """
    run = _Run(program, CAPACITY[program.protocol] if capacity is None else capacity, per_message)
    run.run()
    standing = [b for b in run.blocks if b.step() is not None]
    if not standing:
        return None
    chain: list[_Block] = []
    reasons: list[str] = []
    at: _Block | None = standing[0]
    while at is not None and at not in chain and at.step() is not None:
        chain.append(at)
        why, at = run.blocked_on(at)
        reasons.append(why)
    circular = at is not None and at in chain
    start = chain.index(at) if circular and at is not None else 0
    if not circular and at is not None:
        reasons[-1] += f", but gpu {at.gpu}/tb {at.block.id} has ended"
    places = tuple((b.gpu, b.block.id, b.s) for b in chain[start:])
    return Stuck(places, tuple(reasons[start:]), circular)


def smallest_batch(program: Program, sizes: Sequence[int] | None) -> int:
    """The least `batch` over the sizes a program may be called with: at the largest size."""
    largest = max(sizes) if sizes else program.max_bytes or 2**40
    return batch(program, largest)
