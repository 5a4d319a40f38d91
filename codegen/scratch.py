"""Pass: scratch cells are handed out again once nobody needs what they hold."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from latecomer.codegen.operations import Operation, Place


class Use(NamedTuple):
    """What one operation does with scratch: the block it fills for the first time, the cells it touches.

    Blocks are (first cell, length). A block takes over the cells of one of its own `pool` first.
    """

    round: int
    pool: int
    fills: tuple[int, int] | None
    touches: tuple[tuple[int, int], ...]


def assign_cells(
    uses: Sequence[Use], weights: Sequence[int], lag: int, shared_lag: int | None = None
) -> tuple[dict[int, int], tuple[int, ...]]:
    """(old cell → new cell, weight of each new cell) for the operations of one rank.

    Before: every filled block has cells of its own (`weights[cell]` each). After: a block is used again for one of
    the same weights: of its pool `lag` rounds or more after the round of its last use, of any pool `shared_lag`
    rounds after (None: never). List order is kept, so whoever computes dependencies from the result stays
    free of hazards. Linear in the list, times pools where they share.
    """
    block_of: dict[int, int] = {}
    lengths: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, use in enumerate(uses):
        if use.fills is not None:
            first, length = use.fills
            lengths[first] = length
            block_of |= dict.fromkeys(range(first, first + length), first)
            last[first] = i
        for first, length in use.touches:
            last |= {block_of[cell]: i for cell in range(first, first + length)}
    ends: dict[int, list[int]] = defaultdict(list)
    for first, i in last.items():
        ends[i].append(first)

    moved: dict[int, int] = {}
    cells: list[int] = []
    free: dict[tuple[int, tuple[int, ...]], deque[tuple[int, int]]] = defaultdict(deque)
    key: dict[int, tuple[int, tuple[int, ...]]] = {}
    for i, use in enumerate(uses):
        if use.fills is not None:
            first, length = use.fills
            shape = tuple(weights[first: first + length])
            key[first] = (use.pool, shape)
            pool = free[key[first]]
            if not (pool and pool[0][0] + lag <= use.round) and shared_lag is not None:
                pool = _another(free, shape, use.round - shared_lag)
            if pool and pool[0][0] + lag <= use.round:
                target = pool.popleft()[1]
            else:
                target = len(cells)
                cells += shape
            moved |= {first + k: target + k for k in range(length)}
        for first in ends.get(i, ()):
            free[key[first]].append((use.round, moved[first]))
    return moved, tuple(cells)


def _another(
    free: dict[tuple[int, tuple[int, ...]], deque[tuple[int, int]]], shape: tuple[int, ...], latest: int
) -> deque[tuple[int, int]]:
    """The pool of this shape whose first block has been free longest (since round `latest`); or an empty one."""
    fitting = [pool for (_, other), pool in free.items() if other == shape and pool and pool[0][0] <= latest]
    return min(fitting, key=lambda pool: pool[0], default=deque())


def moved(place: Place | None, cells: dict[int, int]) -> Place | None:
    """`place` after its scratch cell was given another number."""
    if place is None or place.buffer != "scratch":
        return place
    return Place("scratch", cells[place.offset])


def allocate(
    operations: Sequence[Operation], weights: Sequence[int], lag: int
) -> tuple[list[Operation], tuple[int, ...]]:
    """`assign_cells` for a rank's operations: the same ones in fewer cells, and the weight of each cell."""
    cells, sizes = assign_cells([_use(op) for op in operations], weights, lag)
    renamed = [op._replace(src=moved(op.src, cells), other=moved(op.other, cells), dst=moved(op.dst, cells))
               for op in operations]
    return renamed, sizes


def _use(op: Operation) -> Use:
    touched = tuple((p.offset, op.length) for p in (op.src, op.other, op.dst)
                    if p is not None and p.buffer == "scratch")
    if op.kind == "receive" and touched:
        return Use(op.round, 0, touched[0], ())
    return Use(op.round, 0, None, touched)
