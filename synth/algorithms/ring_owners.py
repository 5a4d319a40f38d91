"""Ring pre-work with few owners: a ReduceScatter in which every piece ends where it is told to.

Roles 0 … N-1 in a ring, chunk c ends at `owners[c]`. A chunk starts at the rank after its owner and goes once
round, gathering a contribution at every stop, one hop a round: so it travels on one of N *carriages*, which
go round the ring with one rank between them. A carriage carries one chunk at a time: one port, by
construction.

In each round one carriage stands at the rank after an owner; if it is empty, the owner's next chunk boards
and gets off N-1 rounds later, at the owner. Chunks board in the order of their numbers, each at the first
round that it can.

Rounds: with N owners and K = N every chunk has its own carriage, N-1 rounds (`ring.reduce_scatter`). With q
owners, q chunks at most board in a round, so the carriages are full after about N/q rounds; each then
carries ⌈K/N⌉ chunks of N-1 rounds each, with at most one round's wait for a chunk of the same owner.
Together about K + N/q + ⌈K/N⌉ rounds of S/K, that is S·β as K grows: every rank but the owner sends each
chunk, which no schedule avoids where it owns nothing. (Reversed circulant broadcasts,
`circulant_collectives.reduce_to_owners`, start faster: prefer them when N is large against K.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latecomer.schedules.transfers import Moves, Transfers


def reduce_to_owners(ranks: int, owners: Sequence[int]) -> Transfers:
    """Among roles 0 … ranks-1, the sum of chunk c ends at `owners[c]`; see the module's text. O(K·N)."""
    moves = Moves()
    if ranks < 2:
        return moves.build()
    owner, chunk = np.array(owners, dtype=np.int64), np.arange(len(owners))
    boards = _boarding_rounds(ranks, owner)
    for hop in range(ranks - 1):
        moves.reduce(boards + hop, (owner + 1 + hop) % ranks, (owner + 2 + hop) % ranks, chunk)
    return moves.build()


def _boarding_rounds(ranks: int, owner: np.ndarray) -> np.ndarray:
    """The round in which each chunk leaves the rank after its owner."""
    carriages = np.arange(ranks)
    free_from = np.zeros(ranks, dtype=np.int64)
    boards = np.zeros(len(owner), dtype=np.int64)
    for c, place in enumerate((owner + 1) % ranks):
        # Carriage y is at rank y + t in round t: the first round from `free_from` on in which it is at
        # `place`.
        at = free_from + (place - carriages - free_from) % ranks
        carriage = int(np.argmin(at))
        boards[c] = at[carriage]
        free_from[carriage] = at[carriage] + ranks - 1
    return boards
