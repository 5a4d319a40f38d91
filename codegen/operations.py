"""`OperationList`: what each rank does, with what it must wait for, and no target's limits.

It lies between a `Schedule` and every target: MSCCL programs, put/signal plans and CUDA programs are
lowered from it, and the executor runs it. A target adds its own things (threadblocks, channels, semaphores,
streams) and nothing about meaning.

What an operation list means
----------------------------
* `send` hands `length` chunks at `src` to `peer`; `receive` puts them at `dst`; `reduce` makes `dst = src
  (+) other`, in this order of operands; `copy` makes `dst = src`.
* The k-th message from a to b is received by the k-th receive of b from a. Operations that share a
  `message` number are one message in pieces (a grouped send, or several puts and one signal), in the same
  order on both ends.
* An operation may start when the operations in its `deps` (positions in the same rank's list) are done and,
  where its `stage` is above 0, the arrivals of that stage have happened for its rank; a receive also needs
  its message. Nothing else orders them. What is written is never read or overwritten by an operation that
  does not depend on the writer, directly or through others.
* A place is a buffer and the first chunk in it. `input` holds the rank's contribution and is never written;
  `output` gets the result. Chunk c of either is chunk c of the schedule, and the list is right whether the
  two are the same memory or not (with `in_place`, only `output` is used, and starts with the contribution).
  `scratch` is made of cells that hold one chunk each; relay slots and received partial sums live there.
* Sums are made in the order in which the schedule lists them: accumulator first, then what was received.

Why nothing can get stuck, even where a send waits until its receive takes the data (rendezvous)
------------------------------------------------------------------------------------------------ Number the
messages of the whole schedule by (round, first row). Every rank's list is sorted by that number, an
operation on received data standing right behind its message or at the end of its round. All `deps` point
backwards. Take the unfinished message with the least number: at either end all that stands before it in the
list is done, by induction, so both ends can move it. The same holds if a target runs the list, or any
sublists of it, in list order. A rank that swaps sends its old value: what it receives before it has sent
goes to scratch, and is added after.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from latecomer.schedules.chunks import Chunks
from latecomer.schedules.schedule import Collective

Kind = Literal["send", "receive", "reduce", "copy"]
Buffer = Literal["input", "output", "scratch"]

LOCAL = -1
"""As an operation's peer: none."""


class Place(NamedTuple):
    """Chunks (or scratch cells) from `offset` on, in `buffer`."""

    buffer: Buffer
    offset: int


class Operation(NamedTuple):
    """One thing one rank does; see the module's text.

    `chunk` is the schedule's number of the first chunk moved: chunk … chunk+length-1 say how many elements
    that is. A `reduce` or `copy` carries the `message` (and in `source` the rank) that brought what it
    works on.
    """

    kind: Kind
    peer: int
    message: int
    round: int
    phase: int
    stage: int
    chunk: int
    length: int
    src: Place | None
    other: Place | None
    dst: Place | None
    deps: tuple[int, ...] = ()
    source: int = LOCAL

    def reads(self) -> Iterator[Place]:
        """The places this operation reads, each `length` long."""
        if self.src is not None:
            yield self.src
        if self.other is not None:
            yield self.other

    def __str__(self) -> str:
        what = {"send": f"send to {self.peer}", "receive": f"receive from {self.peer}"}
        text = what.get(self.kind, self.kind)
        places = [f"{p.buffer}[{p.offset}]" for p in (self.src, self.other) if p is not None]
        into = [f"-> {self.dst.buffer}[{self.dst.offset}]"] if self.dst is not None else []
        after = [f"after {', '.join(map(str, self.deps))}"] if self.deps else []
        return " ".join([text, " + ".join(places), *into, f"x{self.length}", *after]).replace("  ", " ")


@dataclass(frozen=True)
class OperationList:
    """The operations of every rank.

    Attributes
    ----------
    chunks:
        The schedule's cut of the message.
    operations:
        Shape (ranks, operations of the rank); `deps` are positions in the same rank's list.
    scratch:
        Shape (ranks, cells of the rank): the weight of the chunk a cell holds (same unit as
        `chunks.weights`; a cell is only reused for chunks of its weight).
    stages:
        Shape (ranks,): the arrival stage of each rank.
    in_place:
        Only `output` is used, and it starts with the rank's contribution.
    """

    collective: Collective
    chunks: Chunks
    operations: tuple[tuple[Operation, ...], ...]
    scratch: tuple[tuple[int, ...], ...]
    stages: tuple[int, ...]
    in_place: bool

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.operations)

    def of(self, rank: int) -> tuple[Operation, ...]:
        """The operations of one rank, in list order."""
        return self.operations[rank]

    @property
    def messages(self) -> int:
        """One more than the greatest message number."""
        return 1 + max((op.message for rank in self.operations for op in rank), default=-1)

    def __str__(self) -> str:
        lines = []
        for rank, operations in enumerate(self.operations):
            cells = len(self.scratch[rank])
            lines.append(f"rank {rank}: {len(operations)} operations, {cells} scratch cells")
            lines += [f"  {i:4d}  round {op.round:<3d} {op}" for i, op in enumerate(operations)]
        return "\n".join(lines)
