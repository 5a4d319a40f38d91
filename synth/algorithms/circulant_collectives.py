"""ReduceScatter, AllGather and AllReduce on the circulant graph: ⌈log2 p⌉ rounds a half, for every p.

Source: Träff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms", arXiv 2410.14234. Each half
takes q = ⌈log2 p⌉ rounds and every rank sends, receives and reduces exactly p-1 of the p blocks: both
optimal (one port; q because what a rank knows at most doubles a round, p-1 because of Patarasuk & Yuan's
volume bound). So an AllReduce takes 2q(α) + 2(p-1)/p·S·β: what halving and doubling does for powers of two,
for every p. Addition must commute.

The right pre-work for small messages and for an odd number of early ranks. A round carries several blocks to
one receiver: rows of the same round, source and destination are one message.

Rank r holds partial sums for the blocks r, r+1, … r+p-1 (mod p) as entries 0 … p-1. In the round of index
k = q-1 … 0 it sends its entries skip[k] … skip[k+1]-1 to rank r + skip[k], where they are entries
0 … skip[k+1]-skip[k]-1, and are added. Entry 0 is left: block r, complete. AllGather is the same backwards,
copying.

`reduce_to_owners` is the pipelined reduction instead: reversed broadcasts, one per owner, one after the
other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.chunks import Chunks
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.transfers import Moves, Transfers
from latecomer.synth.algorithms.assembly import synchronous
from latecomer.synth.algorithms.circulant_graph import broadcast, skips
from latecomer.synth.algorithms.completion import log2_ceil, require_size

Numbers = NDArray[np.int64]


def schedule(ranks: int, chunks: int | None = None) -> Schedule:
    """AllReduce for any n: 2⌈log2 n⌉ rounds, volume 2(n-1)/n. n chunks, or any number, owned in turn."""
    chunks = ranks if chunks is None else chunks
    require_size(ranks, chunks)
    owners = [c % ranks for c in range(chunks)]
    half = log2_ceil(ranks)
    transfers = Transfers.concat(reduce_scatter(ranks, owners), all_gather(ranks, owners).shifted(half))
    return synchronous("circulant_allreduce", ranks, transfers, Chunks.equal(owners))


def reduce_scatter(ranks: int, owners: Sequence[int]) -> Transfers:
    """Among roles 0 … ranks-1, the sum of chunk c ends at `owners[c]`. ⌈log2 ranks⌉ rounds.

    Volume (p-1)/p where owners have equal shares; one message a round and rank, of several chunks.
    """
    moves = Moves()
    for t, (source, distance, chunk) in enumerate(_halves(ranks, owners)):
        moves.reduce(t, source, (source + distance) % ranks, chunk)
    return moves.build()


def all_gather(ranks: int, owners: Sequence[int]) -> Transfers:
    """Among roles 0 … ranks-1, chunk c goes from `owners[c]` to all. ⌈log2 p⌉ rounds, volume (p-1)/p."""
    moves = Moves()
    for t, (receiver, distance, chunk) in enumerate(reversed(_halves(ranks, owners))):
        moves.copy(t, (receiver + distance) % ranks, receiver, chunk)
    return moves.build()


def _halves(ranks: int, owners: Sequence[int]) -> list[tuple[Numbers, int, Numbers]]:
    """For k = q-1 … 0: (rank, skip[k], chunk) for every chunk of the entries that ranks send in that round."""
    skip, owner = skips(ranks), np.array(owners, dtype=np.int64)
    entry = (owner[None, :] - np.arange(ranks)[:, None]) % ranks
    found = []
    for k in reversed(range(len(skip) - 1)):
        rank, chunk = np.nonzero((entry >= skip[k]) & (entry < skip[k + 1]))
        found.append((rank, skip[k], chunk))
    return found


def reduce_to_owners(ranks: int, owners: Sequence[int]) -> Transfers:
    """Among roles 0 … ranks-1, the sum of chunk c ends at `owners[c]`; chunks are pipelined, one a round and
    port.

    A broadcast of an owner's chunks from the owner, played backwards with every hop reversed and adding, is
    their reduction to it. With q different owners of K/q chunks each, q reductions in turn take K + q(⌈log2
    p⌉ - 1) rounds in all: near S·β with many chunks, which is the least for fewer than p owners.
    """
    moves, start = Moves(), 0
    for owner in dict.fromkeys(owners):
        chunk = np.flatnonzero(np.array(owners) == owner)
        hops = broadcast(ranks, len(chunk))
        last = int(hops.round[-1]) if len(hops.round) else -1
        moves.reduce(
            start + last - hops.round[::-1],
            (hops.dst[::-1] + owner) % ranks,
            (hops.src[::-1] + owner) % ranks,
            chunk[hops.block[::-1]],
        )
        start += last + 1
    return moves.build()
