"""The ring: ReduceScatter, AllGather and AllReduce in which every rank only ever sends to the next one.

Bandwidth-optimal for any number of ranks (Patarasuk & Yuan, JPDC 69, 2009): p-1 rounds and (p-1)/p of the
message per port for each half. The price is p-1 latencies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latecomer.schedules.chunks import Chunks
from latecomer.schedules.pattern import Pattern
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.transfers import Moves, Transfers
from latecomer.synth.algorithms.assembly import Prework, synchronous
from latecomer.synth.algorithms.completion import require_size


def schedule(ranks: int, chunks: int | None = None) -> Schedule:
    """AllReduce: 2(n-1) rounds, volume 2(n-1)/n; `chunks` (n by default) go to the owners in turn.

    Time 2(n-1)α + 2(n-1)/n·S·β when n divides `chunks`; the optimum of bytes when nobody is late.
    """
    chunks = ranks if chunks is None else chunks
    require_size(ranks, chunks)
    owners = [c % ranks for c in range(chunks)]
    half = ranks - 1
    transfers = Transfers.concat(reduce_scatter(ranks, owners), all_gather(ranks, owners).shifted(half))
    patterns = (_pattern(ranks, "reduce", 0, -1), _pattern(ranks, "copy", half, 0)) if chunks == ranks else ()
    return synchronous("ring", ranks, transfers, Chunks.equal(owners), patterns=patterns)


def reduce_scatter(ranks: int, owners: Sequence[int]) -> Transfers:
    """Among roles 0 … ranks-1, the sum of chunk c ends at `owners[c]`. ranks-1 rounds.

    Chunk c starts at the rank after its owner and goes once round the ring, gathering a contribution at every stop.
    """
    owner, chunk = np.array(owners), np.arange(len(owners))
    moves = Moves()
    for t in range(ranks - 1):
        moves.reduce(t, (owner + 1 + t) % ranks, (owner + 2 + t) % ranks, chunk)
    return moves.build()


def all_gather(ranks: int, owners: Sequence[int]) -> Transfers:
    """Among roles 0 … ranks-1, chunk c goes from `owners[c]` once round the ring. ranks-1 rounds."""
    owner, chunk = np.array(owners), np.arange(len(owners))
    moves = Moves()
    for t in range(ranks - 1):
        moves.copy(t, (owner + t) % ranks, (owner + t + 1) % ranks, chunk)
    return moves.build()


def prework(early: int, owners: Sequence[int]) -> Prework:
    """ReduceScatter of the early ranks. early-1 rounds, volume (early-1)/early where owners have equal shares."""
    patterns = (_pattern(early, "reduce", 0, -1),) if list(owners) == list(range(early)) and early > 1 else ()
    return Prework("ring", reduce_scatter(early, owners), patterns)


def _pattern(ranks: int, op: str, first_round: int, lead: int) -> Pattern:
    """One chunk a rank: in its step t, rank r sends chunk r + lead - t to rank r + 1."""
    return Pattern(
        op=op,
        phase=0,
        first_round=first_round,
        rounds=ranks - 1,
        roles=tuple(range(ranks)),
        offsets=(1,),
        table=tuple((r + lead,) for r in range(ranks)),
        stride=-1,
        wrap="cyclic",
        chunks=ranks,
    )
