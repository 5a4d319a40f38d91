"""`Program`: per-rank threadblocks of steps, in MSCCL's vocabulary and exactly as a file says it.

A step moves or adds `cnt` consecutive chunks. A threadblock runs its steps in order; a step with `depid` ≥
0 first waits until threadblock `depid` of the same gpu has posted a step ≥ `deps`; a threadblock posts a
step when it is done, if the step's `hasdep` is 1. A step waits for one other at most; `nop` steps before it
carry the rest. Sends and receives pair up in order on each connection (sender, receiver, channel).

| type | action                                              |
|------|-----------------------------------------------------|
| s    | send src                                            |
| r    | receive into dst                                    |
| rcs  | receive into dst and send it on                     |
| rrc  | received (+) src into dst                           |
| rrs  | received (+) src, sent on, not stored               |
| rrcs | received (+) src into dst and sent on               |
| cpy  | src into dst                                        |
| re   | dst (+) src into dst                                |
| nop  | nothing; carries a dependency                       |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

StepType = Literal["s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy", "re", "nop"]
BufferName = Literal["i", "o", "s"]
Protocol = Literal["Simple", "LL", "LL128"]
ProgramCollective = Literal[
    "allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast", "reduce", "custom"
]

SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVES = frozenset({"r", "rcs", "rrc", "rrs", "rrcs"})
READS_SRC = frozenset({"s", "rrc", "rrs", "rrcs", "cpy", "re"})
WRITES_DST = frozenset({"r", "rcs", "rrc", "rrcs", "cpy", "re"})


class Step(NamedTuple):
    """One step; offsets and `cnt` are in chunks. `depid` and `deps` are -1 where it waits for nobody."""

    type: StepType
    srcbuf: BufferName = "o"
    srcoff: int = 0
    dstbuf: BufferName = "o"
    dstoff: int = 0
    cnt: int = 1
    depid: int = -1
    deps: int = -1
    hasdep: int = 0


@dataclass(frozen=True)
class Threadblock:
    """Steps that one block of threads runs in order, with at most one peer to send to and one to receive
    from (-1: none).

    `lines` (of the file it was read from, one per step; `line` of the threadblock itself) takes no part in
    comparison.
    """

    id: int
    send: int
    recv: int
    chan: int
    steps: tuple[Step, ...]
    line: int = field(default=0, compare=False)
    lines: tuple[int, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Gpu:
    """One rank's threadblocks and the lengths of its buffers in chunks."""

    id: int
    i_chunks: int
    o_chunks: int
    s_chunks: int
    threadblocks: tuple[Threadblock, ...]
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Program:
    """A collective for `ranks` ranks; its buffers are cut into `chunks` equal pieces (nchunksperloop).

    Attributes
    ----------
    channels:
        Number of channels (nchannels).
    in_place, out_of_place:
        The calls it serves: same send and receive buffer, different ones. None where a file does not say.
    min_bytes, max_bytes:
        Range of message sizes it serves, both included; `max_bytes` 0: no limit, None where a file does not
        say.
    source:
        The file it was read from.
    """

    name: str | None
    collective: ProgramCollective
    ranks: int
    channels: int
    chunks: int
    protocol: Protocol
    in_place: bool | None
    out_of_place: bool | None
    min_bytes: int | None
    max_bytes: int | None
    gpus: tuple[Gpu, ...]
    source: str | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)

    def steps(self) -> Iterator[tuple[Gpu, Threadblock, int, Step]]:
        """(gpu, threadblock, position, step) in file order."""
        for gpu in self.gpus:
            for block in gpu.threadblocks:
                for k, step in enumerate(block.steps):
                    yield gpu, block, k, step
