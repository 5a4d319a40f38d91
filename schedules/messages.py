"""`Messages`: the transfers of one round between the same two ranks travel together, as one message."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.schedule import Schedule
from latecomer.schedules.transfers import Transfers


@dataclass(frozen=True)
class Messages:
    """Columns of shape (messages,), in order of priority; `of_row` (rows,) is the message of each transfer.

    A message costs one latency and the bytes of all its chunks. Priority is the round, then the position of
    the message's first row within the round.
    """

    round: NDArray[np.int32]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    phase: NDArray[np.int32]
    weight: NDArray[np.int64]
    of_row: NDArray[np.int64]

    @classmethod
    def of(cls, schedule: Schedule, transfers: Transfers | None = None) -> Messages:
        """`weight` counts in units of message size / `schedule.chunks.total`. O(rows log rows)."""
        moves = schedule.transfers if transfers is None else transfers
        key = (moves.round.astype(np.int64) * schedule.ranks + moves.src) * schedule.ranks + moves.dst
        _, first, group = np.unique(key, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        of_row = place[group]
        lead = first[order]
        weights = np.array(schedule.chunks.weights, dtype=np.int64)
        weight = np.bincount(of_row, weights=weights[moves.chunk], minlength=len(order)).astype(np.int64)
        return cls(moves.round[lead], moves.src[lead], moves.dst[lead], moves.phase[lead], weight, of_row)

    def __len__(self) -> int:
        return len(self.round)
