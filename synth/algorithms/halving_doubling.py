"""Recursive halving and doubling: AllReduce for powers of two in 2·log2 n rounds.

Rabenseifner's algorithm (Thakur, Rabenseifner & Gropp, IJHPCA 19, 2005): same volume as the ring, far fewer latencies.
"""

from __future__ import annotations

import numpy as np

from latecomer.schedules.chunks import Chunks
from latecomer.schedules.errors import NotApplicable
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.transfers import Moves
from latecomer.synth.algorithms.assembly import synchronous
from latecomer.synth.algorithms.completion import require_size


def schedule(ranks: int, chunks: int | None = None) -> Schedule:
    """AllReduce: 2·log2 n rounds, volume 2(n-1)/n. n chunks, or a multiple of n.

    In round k of the first half, ranks at distance d = n/2^(k+1) swap halves of what they are still
    responsible for; the second half runs the same distances backwards and copies. Raises `NotApplicable` for other n.
    """
    chunks = ranks if chunks is None else chunks
    require_size(ranks, chunks)
    if ranks & (ranks - 1):
        raise NotApplicable(f"halving_doubling needs a power of two of ranks, not {ranks}; ring serves any number")
    owners = np.arange(chunks) % ranks
    moves = Moves()
    for t, (rank, chunk, distance) in enumerate(_halvings(ranks, owners)):
        moves.reduce(t, rank, rank ^ distance, chunk)
    for t, (rank, chunk, distance) in enumerate(reversed(_halvings(ranks, owners))):
        # What the partner gave away on the way down it gets back on the way up.
        moves.copy(ranks.bit_length() - 1 + t, rank ^ distance, rank, chunk)
    return synchronous("halving_doubling", ranks, moves.build(), Chunks.equal(owners.tolist()))


def _halvings(ranks: int, owners: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """For distances n/2 … 1: (sender, chunk) of all that is sent, where the owner is on the partner's side.

    `sender ^ distance` receives it. A rank still holds the chunks whose owner agrees with it in all higher bits.
    """
    rounds = []
    distance = ranks // 2
    while distance:
        differ = np.arange(ranks)[:, None] ^ owners[None, :]
        rank, chunk = np.nonzero((differ >= distance) & (differ < 2 * distance))
        rounds.append((rank, chunk, distance))
        distance //= 2
    return rounds
