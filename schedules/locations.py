"""Where values live: every (role, chunk, slot) that a schedule touches, numbered densely.

Shared by the checker, the simulator and whoever else replays a schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.schedule import Schedule
from latecomer.schedules.transfers import ACCUMULATOR, Transfers


@dataclass(frozen=True)
class Locations:
    """Accumulators come first (role · chunks + chunk), then the relay slots in use.

    `source` and `target` have shape (rows,): the location each transfer reads and writes.
    """

    ranks: int
    chunks: int
    relays: NDArray[np.int64]
    source: NDArray[np.int64]
    target: NDArray[np.int64]

    @classmethod
    def of(cls, schedule: Schedule) -> Locations:
        """O(rows log rows)."""
        ranks, chunks, moves = schedule.ranks, len(schedule.chunks), schedule.transfers
        accumulators = ranks * chunks
        source = _key(moves, moves.src, moves.src_slot, ranks, chunks)
        target = _key(moves, moves.dst, moves.dst_slot, ranks, chunks)
        relays = np.unique(np.concatenate([source[source >= accumulators], target[target >= accumulators]]))
        for keys in (source, target):
            relayed = keys >= accumulators
            keys[relayed] = accumulators + np.searchsorted(relays, keys[relayed])
        return cls(ranks, chunks, relays, source, target)

    def __len__(self) -> int:
        return self.ranks * self.chunks + len(self.relays)

    def name(self, location: int) -> tuple[int, int, int]:
        """(role, chunk, slot) of a location."""
        accumulators = self.ranks * self.chunks
        key = int(self.relays[location - accumulators]) if location >= accumulators else location
        slot, place = divmod(key, accumulators)
        return *divmod(place, self.chunks), slot


def _key(
    moves: Transfers, role: NDArray[np.int32], slot: NDArray[np.int32], ranks: int, chunks: int
) -> NDArray[np.int64]:
    assert ACCUMULATOR == 0  # so that an accumulator's key is its dense number
    return (slot.astype(np.int64) * ranks + role) * chunks + moves.chunk
