"""Circulant completion: round-optimal for every n ≥ 2 and K ≥ 1, in closed form but for one matching.

**Rounds K + ⌈log2 n⌉ - 1**, which no one-port schedule beats (`completion.least_rounds`). The straggler is
the root of the pipelined circulant broadcast (`circulant_graph`; Träff, arXiv 2407.18004) and sends each
chunk to its owner first; owners and receivers pass full sums on. Each rank talks to about 2·log2 n peers and
repeats the same q = ⌈log2 n⌉ steps, so a compiled program needs few connections and can loop. Volume: each
early rank receives S; the straggler sends and receives S (and some copies of its last chunk).

The first receiver of a chunk is one of the q ranks at distance skip[k] from the straggler, so these q ranks
own all chunks. The price: the pre-work reduces to q owners instead of N = n-1 and takes S·β instead of
(N-1)/N·S·β, which is also the least for fewer than N owners. With `every_owner`, after a full early
AllReduce, every early rank holds every P_c.

The feed (ours): the straggler receives nothing from the broadcast, so its receive port is free in every round
to take each chunk once, from a rank whose send port the broadcast leaves free and which holds P_c as its
owner or F_c. Rounds × chunks is a bipartite graph; a matching that covers all chunks is the feed. One
existed for every n and K tried (n = 2 … 257, 500 … 1025). O(K·n + K²) with arrays.

* A chunk is fed after, or in the same round as, the straggler first sends it (so what it sends is its own
  contribution, which the owner adds), but for the last one, which must be fed by then: the straggler goes on
  sending its full sum.
* With `every_owner` the feed needs no search: in round c the straggler takes P_c from the rank that would
  send to it if it were not the root.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.chunks import EVERY_EARLY_RANK
from latecomer.schedules.errors import LatecomerError
from latecomer.schedules.pattern import Pattern
from latecomer.schedules.transfers import Moves
from latecomer.synth.algorithms.circulant_graph import Hops, broadcast, phase_offset, schedules, skips
from latecomer.synth.algorithms.completion import Completion, least_rounds, log2_ceil, require_size

Numbers = NDArray[np.int64]
Marks = NDArray[np.bool_]


def completion(ranks: int, chunks: int, *, every_owner: bool = False) -> Completion:
    """K + ⌈log2 n⌉ - 1 rounds for any n and K; see the module's text.

    `every_owner`: every early rank holds every partial sum at the arrival, instead of q owners.
    """
    require_size(ranks, chunks)
    straggler, rounds = ranks - 1, least_rounds(ranks, chunks)
    hops = broadcast(ranks, chunks)
    k = (np.arange(rounds) + phase_offset(ranks, chunks)) % log2_ceil(ranks)
    distance = np.array(skips(ranks))[k]
    owner = distance[:chunks] - 1
    if every_owner:
        fed_round, feeder = np.arange(chunks), (-distance[:chunks]) % ranks - 1
    else:
        fed_round, feeder = _feed(hops, owner, ranks, rounds)
    moves = Moves()
    # The straggler sends its own contribution once per chunk, then its last full sum; it copies a full sum
    # also where the last chunk was fed before.
    own = (hops.src == 0) & (hops.round == hops.block) & (fed_round[hops.block] >= hops.round)
    moves.move(hops.round, (hops.src - 1) % ranks, hops.dst - 1, hops.block, reduce=own)
    received = _first_round(hops, ranks, chunks)
    moves.move(
        fed_round, feeder, straggler, np.arange(chunks), reduce=received[feeder + 1, np.arange(chunks)] >= fed_round
    )
    owners = (EVERY_EARLY_RANK,) * chunks if every_owner else tuple(owner.tolist())
    patterns = _patterns(ranks, chunks, int(np.sum(own)), every_owner=every_owner)
    return Completion(moves.build(), owners, rounds, patterns)


def _first_round(hops: Hops, ranks: int, chunks: int) -> NDArray[np.int32]:
    """Shape (positions, chunks): the round in which each position receives each full sum; the root never."""
    received = np.full((ranks, chunks), np.iinfo(np.int32).max, dtype=np.int32)
    received[hops.dst, hops.block] = hops.round
    return received


def _feed(hops: Hops, owner: Numbers, ranks: int, rounds: int) -> tuple[Numbers, Numbers]:
    """For each chunk the round in which the straggler takes it, and the early role that hands it over."""
    chunks = len(owner)
    received = _first_round(hops, ranks, chunks)
    free = np.ones((rounds, ranks), dtype=bool)
    free[hops.round, hops.src] = False
    free[:, 0] = False
    owned = free[:, owner + 1]
    possible = owned.copy()
    for t in range(rounds):
        # In the steady state one rank is free; in the last rounds many are, and a few hold all there is.
        some = np.flatnonzero(free[t])[: 2 * log2_ceil(ranks)]
        if len(some):
            possible[t] |= np.min(received[some], axis=0) < t
    late = np.arange(rounds)[:, None] >= np.arange(chunks)
    late[:, -1] = np.arange(rounds) < chunks
    fed_round = _match(possible & late)
    feeder = np.where(owned[fed_round, np.arange(chunks)], owner, -1)
    for c in np.flatnonzero(feeder < 0):
        able = free[fed_round[c]] & (received[:, c] < fed_round[c])
        feeder[c] = np.argmax(able) - 1
    return fed_round, feeder


def _match(possible: Marks) -> Numbers:
    """A round for every chunk, all different; `possible` has shape (rounds, chunks)."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    found = np.asarray(maximum_bipartite_matching(csr_array(possible), perm_type="row"), dtype=np.int64)
    if np.any(found < 0):
        raise LatecomerError(f"circulant: no round is left to feed chunk {int(np.argmin(found))}")
    return found


def _patterns(ranks: int, chunks: int, own_rounds: int, *, every_owner: bool) -> tuple[Pattern, ...]:
    """What repeats every q rounds while there are new chunks: rounds 0 … K-1, before the wind-down.

    The early ranks' copies, the straggler's own contribution (in its first `own_rounds` rounds), and with
    `every_owner` the feed. Position p is p further round the circle than the straggler.
    """
    skip, offset, q = skips(ranks), phase_offset(ranks, chunks), log2_ceil(ranks)
    order = [(j + offset) % q for j in range(q)]
    distance = [skip[k] for k in order]
    # Round j has index k: the stretch its schedule counts from began in round j - k, which may be negative.
    ahead = [j - k for j, k in enumerate(order)]
    _, sends = schedules(ranks)
    spread: list[list[int | None]] = [[None] * q for _ in range(ranks)]
    own, feed = [list(row) for row in spread], [list(row) for row in spread]
    for j, k in enumerate(order):
        for p in range(1, ranks):
            if (p + skip[k]) % ranks:
                spread[p][j] = int(sends[p, k]) + ahead[j]
        own[0][j] = feed[-skip[k] % ranks][j] = j

    def pattern(op: Literal["copy", "reduce"], table: list[list[int | None]], rounds: int) -> Pattern:
        return Pattern(
            op=op,
            phase=0,
            first_round=0,
            rounds=rounds,
            roles=(ranks - 1, *range(ranks - 1)),
            offsets=tuple(distance),
            table=tuple(map(tuple, table)),
            stride=q,
            wrap="clamp",
            chunks=chunks,
        )

    found = [pattern("copy", spread, chunks)] if ranks > 2 else []
    found += [pattern("reduce", own, own_rounds)] if own_rounds else []
    found += [pattern("reduce", feed, chunks)] if every_owner else []
    return tuple(found)
