"""Direct: the early ranks finish an AllReduce among themselves; the straggler swaps whole messages with one, which
spreads.

The "Direct"/"Broadcast" baseline of StragglAR (Devraj et al., arXiv 2505.23523): fewest latencies, log2 n times the
bytes.
"""

from __future__ import annotations

import numpy as np

from latecomer.schedules.chunks import EVERY_EARLY_RANK, Chunks
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.transfers import Moves, Transfers
from latecomer.synth.algorithms import ring
from latecomer.synth.algorithms.assembly import Prework, completed
from latecomer.synth.algorithms.completion import Completion, log2_ceil, require_size


def schedule(ranks: int, chunks: int | None = None) -> Schedule:
    """⌈log2 n⌉ rounds after the arrival, each of the whole message: ⌈log2 n⌉(α + S·β). Right for tiny messages, any n.

    `chunks` (n-1 by default) only cuts the early ranks' AllReduce, a ring of 2(n-2) rounds.
    """
    chunks = max(1, ranks - 1) if chunks is None else chunks
    require_size(ranks, chunks)
    early = ranks - 1
    owners = [c % early for c in range(chunks)]
    before = Transfers.concat(ring.reduce_scatter(early, owners), ring.all_gather(early, owners).shifted(early - 1))
    completion = Completion(_broadcast(ranks, chunks), (EVERY_EARLY_RANK,) * chunks, log2_ceil(ranks))
    return completed("direct", ranks, Prework("ring all-reduce", before), completion, Chunks.equal(completion.owners))


def _broadcast(ranks: int, chunks: int) -> Transfers:
    """The straggler and role 0 swap; then every rank that knows tells one that does not."""
    moves = Moves()
    everything = np.arange(chunks)
    moves.swap(0, ranks - 1, 0, everything)
    knowing, waiting = [ranks - 1, 0], list(range(1, ranks - 1))
    for t in range(1, log2_ceil(ranks)):
        told, waiting = waiting[: len(knowing)], waiting[len(knowing) :]
        for teller, listener in zip(knowing, told, strict=False):
            moves.copy(t, teller, listener, everything)
        knowing += told
    return moves.build()
