"""`Draft`: a step that has no threadblock yet; and the passes that make drafts of operations.

Offsets and lengths are in *units*: the equal pieces a program's buffers are cut into.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import gcd
from typing import NamedTuple

from latecomer.codegen.operations import Operation, OperationList, Place
from latecomer.codegen.targets import MAX_CNT, Target
from latecomer.schedules.program import StepType


class Wire(NamedTuple):
    """One end of a message: the peer, and the message's number in the whole schedule."""

    peer: int
    message: int


class Draft(NamedTuple):
    """A step of one rank.

    `recv` and `send` are the messages it takes and makes (None: none). `home` is the message whose receiving
    threadblock a local step (`cpy`, `re`) runs in.
    """

    type: StepType
    src: Place | None
    dst: Place | None
    length: int
    recv: Wire | None
    send: Wire | None
    home: Wire | None
    round: int
    stage: int

    def access(self) -> tuple[tuple[Place, ...], Place | None, int]:
        """(places read, place written, length)."""
        reads = (self.src,) if self.src is not None else ()
        if self.type == "re" and self.dst is not None:
            reads = (*reads, self.dst)
        return reads, self.dst, self.length


class Units:
    """A schedule's chunks, possibly of different sizes, as whole numbers of equal units.

    `total` units make up the message; chunk c starts at unit `starts[c]`.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        common = gcd(*weights)
        self.sizes = [w // common for w in weights]
        self.starts = [0, *accumulate(self.sizes)]
        self.total = self.starts[-1]
        self.common = common


def draft_rank(
    operations: Sequence[Operation], cells: Sequence[int], units: Units, target: Target
) -> tuple[list[Draft], int]:
    """One rank's raw operations as drafts in list order, and how many units of scratch they use, none twice.

    Before: every received run has its own cells (weights `cells`), as `raw_operations` makes them. After:
    same values at same places; a step moves at most 71 units; a receive with its addition right behind it
    is one `rrc` where the target has that.
    """
    scratch = [0, *accumulate(w // units.common for w in cells)]
    drafts: list[Draft] = []
    i = 0
    while i < len(operations):
        op = operations[i]
        following = operations[i + 1] if i + 1 < len(operations) else None
        if target.fused and following is not None and _is_receive_reduce(op, following):
            op, i = following._replace(kind="reduce", peer=op.peer), i + 1
            types: tuple[StepType, ...] = ("rrc",)
        elif op.kind == "reduce" and op.src != op.dst:
            # `re` adds to what is there: bring the contribution first.
            types = ("cpy", "re")
        else:
            types = _TYPES[op.kind]
        pieces = _pieces(op, units, scratch)
        for kind in types:
            drafts += [_draft(kind, op, piece) for piece in pieces]
        i += 1
    return drafts, scratch[-1]


_TYPES: dict[str, tuple[StepType, ...]] = {
    "send": ("s",), "receive": ("r",), "copy": ("cpy",), "reduce": ("re",)
}


def _is_receive_reduce(op: Operation, following: Operation) -> bool:
    return (op.kind == "receive" and following.kind == "reduce" and op.message == following.message
            and op.dst == following.other and op.length == following.length)


class _Piece(NamedTuple):
    src: Place | None
    other: Place | None
    dst: Place | None
    length: int


def _pieces(op: Operation, units: Units, scratch: Sequence[int]) -> list[_Piece]:
    """The operation in units, cut where it is longer than a step can be."""
    length = units.starts[op.chunk + op.length] - units.starts[op.chunk]
    src, other = _in_units(op.src, units, scratch), _in_units(op.other, units, scratch)
    dst = _in_units(op.dst, units, scratch)
    if length <= MAX_CNT:
        return [_Piece(src, other, dst, length)]
    parts = -(-length // MAX_CNT)
    bounds = [length * k // parts for k in range(parts + 1)]
    return [
        _Piece(_further(src, low), _further(other, low), _further(dst, low), high - low)
        for low, high in pairwise(bounds)
    ]


def _in_units(place: Place | None, units: Units, scratch: Sequence[int]) -> Place | None:
    if place is None:
        return None
    starts = scratch if place.buffer == "scratch" else units.starts
    return Place(place.buffer, starts[place.offset])


def _further(place: Place | None, offset: int) -> Place | None:
    return None if place is None else Place(place.buffer, place.offset + offset)


def _draft(kind: StepType, op: Operation, piece: _Piece) -> Draft:
    wire = Wire(op.peer, op.message)
    when = (op.round, op.stage)
    if kind == "s":
        return Draft("s", piece.src, None, piece.length, None, wire, None, *when)
    if kind in ("r", "rrc"):
        return Draft(kind, piece.src, piece.dst, piece.length, wire, None, None, *when)
    src = piece.other if kind == "re" else piece.src
    return Draft(kind, src, piece.dst, piece.length, None, None, Wire(op.source, op.message), *when)


def units_of(operations: OperationList) -> Units:
    """The common units of the list's chunks."""
    return Units(operations.chunks.weights)
