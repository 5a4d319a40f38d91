"""Pass: scratch cells are handed out again once nobody needs what they hold."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from latecomer.codegen.operations import Operation, Place


def allocate(
    operations: Sequence[Operation], weights: Sequence[int], lag: int
) -> tuple[list[Operation], tuple[int, ...]]:
    """The same operations of one rank in fewer scratch cells, and the weight of each cell.

    Before: every received run has cells of its own (`weights[cell]` each). After: a block of cells is used
    again for a run of the same weights, `lag` rounds or more after the round of its last reader; the order
    of the list is kept, so whoever computes dependencies from it stays free of hazards. Linear in the list.
    """
    last_use: dict[int, int] = {}
    blocks: dict[int, int] = {}
    """First cell of each received block → its length."""
    for i, op in enumerate(operations):
        if op.kind == "receive" and op.dst is not None and op.dst.buffer == "scratch":
            blocks[op.dst.offset] = op.length
        for place in (op.src, op.other, op.dst):
            if place is not None and place.buffer == "scratch":
                for cell in range(place.offset, place.offset + op.length):
                    last_use[cell] = i
    ends: dict[int, list[int]] = defaultdict(list)
    for first, count in blocks.items():
        ends[max(last_use[cell] for cell in range(first, first + count))].append(first)

    moved: dict[int, int] = {}
    cells: list[int] = []
    free: dict[tuple[int, ...], deque[tuple[int, int]]] = defaultdict(deque)
    result = []
    for i, op in enumerate(operations):
        if op.dst is not None and op.kind == "receive" and op.dst.buffer == "scratch":
            first, shape = op.dst.offset, tuple(weights[op.dst.offset: op.dst.offset + op.length])
            if free[shape] and free[shape][0][0] + lag <= op.round:
                target = free[shape].popleft()[1]
            else:
                target = len(cells)
                cells += shape
            moved |= {first + k: target + k for k in range(op.length)}
        for first in ends.get(i, ()):
            shape = tuple(weights[first: first + blocks[first]])
            free[shape].append((op.round, moved[first]))
        places = {name: _moved(getattr(op, name), moved) for name in ("src", "other", "dst")}
        result.append(op._replace(**places))
    return result, tuple(cells)


def _moved(place: Place | None, moved: dict[int, int]) -> Place | None:
    return Place("scratch", moved[place.offset]) if place is not None and place.buffer == "scratch" else place
