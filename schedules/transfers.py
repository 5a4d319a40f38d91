"""`Transfers`: who sends which chunk to whom in which round, as columns of numbers.

One row is one chunk moved over one hop. Columns, not objects, because the schedule of 256 ranks and
255 chunks has 130,000 rows and is still to be checked in a blink.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int32]

ACCUMULATOR = 0
"""The slot that starts with the rank's own contribution and ends with the result; relay slots are 1, 2, …"""


@dataclass(frozen=True, eq=False)
class Transfers:
    """Rows sorted by round; within a round the row order is the order of priority at a port, and the order of
    reduction.

    Columns, each of shape (rows,):

    * `round`: priority, from 0. Not a barrier (see `latecomer.schedules.schedule`).
    * `src`, `dst`: roles, 0 … ranks-1.
    * `chunk`: 0 … chunks-1.
    * `reduce`: 1 adds to what the destination slot holds, 0 replaces it.
    * `phase`: index into `Schedule.phases`.
    * `src_slot`, `dst_slot`: `ACCUMULATOR` or the number of a relay slot.
    """

    round: Ints
    src: Ints
    dst: Ints
    chunk: Ints
    reduce: Ints
    phase: Ints
    src_slot: Ints
    dst_slot: Ints

    def __len__(self) -> int:
        return len(self.round)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transfers) and all(map(np.array_equal, self.columns(), other.columns()))

    __hash__ = None  # type: ignore[assignment]  # mutable arrays inside

    def columns(self) -> tuple[Ints, ...]:
        """The eight columns in their order of declaration."""
        return tuple(getattr(self, f.name) for f in fields(self))

    @classmethod
    def of(cls, *columns: Any) -> Transfers:
        """From eight equally long columns; sorts by round and keeps the order of rows within one."""
        arrays = [np.ascontiguousarray(column, dtype=np.int32) for column in columns]
        if np.any(np.diff(arrays[0]) < 0):
            order = np.argsort(arrays[0], kind="stable")
            arrays = [array[order] for array in arrays]
        for array in arrays:
            array.flags.writeable = False
        return cls(*arrays)

    def where(self, mask: NDArray[np.bool_]) -> Transfers:
        """The rows where `mask` (rows,) is true."""
        return Transfers.of(*(column[mask] for column in self.columns()))

    def shifted(self, rounds: int) -> Transfers:
        """The same rows, `rounds` later."""
        return Transfers.of(self.round + rounds, *self.columns()[1:])

    @staticmethod
    def concat(*parts: Transfers) -> Transfers:
        """All rows of `parts`, merged by round; rows of an earlier part come first within a round."""
        if not parts:
            return Moves().build()
        return Transfers.of(*(np.concatenate(columns) for columns in zip(*(p.columns() for p in parts), strict=True)))

    @property
    def rounds(self) -> int:
        """One more than the last round used; 0 when there are no rows."""
        return int(self.round[-1]) + 1 if len(self) else 0

    def round_starts(self) -> NDArray[np.int64]:
        """Shape (rounds + 1,): the rows of round r are `starts[r]:starts[r + 1]`."""
        return np.searchsorted(self.round, np.arange(self.rounds + 1))

    def by_round(self) -> Iterator[tuple[int, slice]]:
        """(round, its rows) for every round that has rows."""
        starts = self.round_starts().tolist()
        for number, (first, last) in enumerate(pairwise(starts)):
            if first < last:
                yield number, slice(first, last)


@dataclass
class Moves:
    """Collects transfers while a construction walks through its rounds; `build()` makes the `Transfers`.

    Every argument may be a number or an array; arrays and numbers broadcast to one row per element.
    """

    _parts: list[tuple[Ints, ...]] = field(default_factory=list)

    def copy(
        self,
        round: ArrayLike,
        src: ArrayLike,
        dst: ArrayLike,
        chunk: ArrayLike,
        *,
        phase: ArrayLike = 0,
        src_slot: ArrayLike = ACCUMULATOR,
        dst_slot: ArrayLike = ACCUMULATOR,
    ) -> None:
        """The destination slot becomes what the source slot holds."""
        self.move(round, src, dst, chunk, reduce=0, phase=phase, src_slot=src_slot, dst_slot=dst_slot)

    def reduce(
        self,
        round: ArrayLike,
        src: ArrayLike,
        dst: ArrayLike,
        chunk: ArrayLike,
        *,
        phase: ArrayLike = 0,
        src_slot: ArrayLike = ACCUMULATOR,
        dst_slot: ArrayLike = ACCUMULATOR,
    ) -> None:
        """What the source slot holds is added to the destination slot."""
        self.move(round, src, dst, chunk, reduce=1, phase=phase, src_slot=src_slot, dst_slot=dst_slot)

    def swap(self, round: ArrayLike, a: ArrayLike, b: ArrayLike, chunk: ArrayLike, *, phase: ArrayLike = 0) -> None:
        """`a` and `b` exchange their partial sums of `chunk` and both add: both read the old values."""
        self.reduce(round, a, b, chunk, phase=phase)
        self.reduce(round, b, a, chunk, phase=phase)

    def move(
        self,
        round: ArrayLike,
        src: ArrayLike,
        dst: ArrayLike,
        chunk: ArrayLike,
        *,
        reduce: ArrayLike,
        phase: ArrayLike = 0,
        src_slot: ArrayLike = ACCUMULATOR,
        dst_slot: ArrayLike = ACCUMULATOR,
    ) -> None:
        """Copy or reduce, by the value of `reduce` in each row."""
        columns = (round, src, dst, chunk, reduce, phase, src_slot, dst_slot)
        arrays = np.broadcast_arrays(*(np.asarray(c, dtype=np.int32) for c in columns))
        self._parts.append(tuple(np.atleast_1d(a).ravel() for a in arrays))

    def build(self) -> Transfers:
        """All rows so far, sorted by round; within a round in the order they were added."""
        if not self._parts:
            return Transfers.of(*([[]] * 8))
        return Transfers.of(*(np.concatenate(columns) for columns in zip(*self._parts, strict=True)))
