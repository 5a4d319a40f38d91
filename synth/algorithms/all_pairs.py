"""All-pairs: every rank talks to all its peers at once. Two hops, any n, no log n; needs shared ports.

The message is cut into m segments. Four kinds of move, one segment each; in units of S·β/m every port carries

========== ============================================================== ========= ==========
move       what                                                           early     straggler
========== ============================================================== ========= ==========
reduce     the early ranks ReduceScatter the segment to N = n-1 owners    (N-1)/N   –
swap       the straggler and each owner swap their piece, both add        1/N       1
gather     the owners all-gather their full pieces among the early ranks  (N-1)/N   0
scatter    all n ranks ReduceScatter a raw segment to n owners            (n-1)/n   (n-1)/n
spread     the n owners all-gather it                                     (n-1)/n   (n-1)/n
========== ============================================================== ========= ==========

(that is: the pre-work, its completion, and the synchronous two-step AllReduce). A segment that was *reduced*
before the straggler came costs every port 1, a *raw* one 2(n-1)/n. A delay of d·S·β has room to reduce a share
x = min(1, d(n-1)/(n-2)) of the message, so

    T(d) = x + (1 - x)·2(n-1)/n = max(1, (2(n-1) - (n-1)·d)/n)   in units of S·β,

which is the lower bound at every d (`latecomer.schedules.bounds.bandwidth_bound`): no schedule does better. Both
parts keep all ports full but for one segment's gather, so T = T(d) + (n-2)/((n-1)m)·S·β + latencies, of which a fully
reduced message has m+1 rounds' and a raw one two rounds'.

* `schedule`: the *planned* form: which segments are reduced is fixed for an expected delay. Static; what XML can hold.
* `adaptive`: nobody needs to know the delay: segments are reduced one after another until the straggler is there, and a
  branch for every number of them says how to go on.
* `synchronous_schedule`: nobody is late; two rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.chunks import Chunks
from latecomer.schedules.errors import InputError
from latecomer.schedules.schedule import Branch, Phase, Schedule
from latecomer.schedules.transfers import Moves, Transfers
from latecomer.synth.algorithms.assembly import provenance, synchronous
from latecomer.synth.algorithms.completion import require_size

PREWORK, COMPLETION, SYNCHRONOUS = 0, 1, 2
PHASES = (Phase(kind="prework", stage=0), Phase(kind="completion", stage=1), Phase(kind="synchronous", stage=1))


@dataclass(frozen=True)
class Segment:
    """Consecutive chunks of the message, and who owns each."""

    chunks: NDArray[np.int64]
    owner: NDArray[np.int64]


def schedule(ranks: int, segments: int | None = None, *, delay: Fraction | None = None) -> Schedule:
    """The planned form for a straggler expected `delay`·S·β late (None: late enough to reduce everything).

    `segments` (8 by default) of which the share x (module text), rounded down, is reduced in one round of pre-work.
    Rounds after the arrival: r + 1 for r reduced segments, and twice a logarithm of the number of raw ones. Arriving
    earlier or later than planned is correct and costs time.
    """
    segments = 8 if segments is None else segments
    require_size(ranks, segments)
    reduced = segments if delay is None else int(reducible(ranks, delay) * segments)
    early = ranks - 1
    parts = [Segment(s * early + np.arange(early), np.arange(early)) for s in range(reduced)]
    first = reduced * early
    raw = []
    for size in _doubling(segments - reduced, reduced > 0):
        every = np.arange(size * ranks)
        raw.append(Segment(first + every, every // size))
        first += len(every)
    # In units of S / (segments · early · ranks) a segment is early·ranks.
    sizes = [ranks] * (reduced * early) + [early] * (first - reduced * early)
    owners = tuple(int(o) for part in (*parts, *raw) for o in part.owner)
    moves = Moves()
    for part in parts:
        _reduce(moves, 0, part, early)
    before = 1 if reduced and early > 1 else 0
    transfers = Transfers.concat(moves.build(), _after_arrival(ranks, parts, raw, before))
    return Schedule(
        ranks=ranks,
        binding=tuple(range(ranks)),
        ports="shared",
        stages=(*(0,) * early, 1),
        phases=PHASES,
        chunks=Chunks(weights=tuple(sizes), owners=owners),
        provenance=provenance("all_pairs", first, {"prework": "all_pairs", "segments": segments, "reduced": reduced}),
        transfers=transfers,
    )


def adaptive(ranks: int, segments: int | None = None) -> Schedule:
    """The form that needs no delay: one segment of pre-work a round, one branch per number of segments reduced.

    A segment is cut both into N and into n equal pieces, so it has 2n-2 chunks, whichever way it will be owned: g raw
    segments together are cut at multiples of g/n, which are multiples of 1/n of one.
    The branch after r rounds finishes r reduced segments and `segments` - r raw ones. The pre-work's round is cheap
    to stop after: the decision takes one round trip, and who arrives meanwhile loses nothing.
    Size: O(segments² · n²) rows in all.
    """
    segments = 8 if segments is None else segments
    require_size(ranks, segments)
    early = ranks - 1
    cuts = sorted({i * ranks for i in range(early + 1)} | {j * early for j in range(ranks + 1)})
    starts = np.array(cuts[:-1])
    pieces = len(starts)
    parts = [Segment(s * pieces + np.arange(pieces), starts // ranks) for s in range(segments)]
    moves = Moves()
    if early > 1:
        for t, part in enumerate(parts):
            _reduce(moves, t, part, early)
    trunk = moves.build()

    def raw(done: int) -> list[Segment]:
        groups, first = [], done
        for size in _doubling(segments - done, done > 0):
            # In units of 1/(n·N) of a segment: where each chunk of the group begins, and what an owner has.
            at = (np.arange(size)[:, None] * early * ranks + starts).ravel()
            groups.append(Segment(first * pieces + np.arange(size * pieces), at // (size * early)))
            first += size
        return groups

    branches = tuple(
        Branch(prework_rounds=done, transfers=_after_arrival(ranks, parts[:done], raw(done), done))
        for done in range(trunk.rounds + 1)
    )
    if early == 1:  # two ranks: there is nothing to reduce early, and only one way to go on
        branches = (Branch(prework_rounds=0, transfers=_after_arrival(ranks, parts, [], 0)),)
    return Schedule(
        ranks=ranks,
        binding=tuple(range(ranks)),
        ports="shared",
        stages=(*(0,) * early, 1),
        phases=PHASES,
        chunks=Chunks(
            weights=tuple(np.diff(cuts).tolist()) * segments, owners=tuple((starts // ranks).tolist()) * segments
        ),
        provenance=provenance("adaptive", pieces * segments, {"prework": "all_pairs", "segments": segments}),
        transfers=trunk,
        branches=branches,
    )


def synchronous_schedule(ranks: int, chunks: int | None = None) -> Schedule:
    """Two-step all-pairs AllReduce: scatter to n owners, spread. 2 rounds, volume 2(n-1)/n, the optimum."""
    chunks = ranks if chunks is None else chunks
    require_size(ranks, chunks)
    owners = np.arange(chunks) % ranks
    whole = Segment(np.arange(chunks), owners)
    moves = Moves()
    _exchange(moves, 0, whole, range(ranks), reduce=True, phase=0)
    _exchange(moves, 1, whole, range(ranks), reduce=False, phase=0)
    return synchronous("all_pairs_sync", ranks, moves.build(), Chunks.equal(owners.tolist()), ports="shared")


def reducible(ranks: int, delay: Fraction) -> Fraction:
    """The share of the message that the early ranks can ReduceScatter in `delay`·S·β: min(1, d(n-1)/(n-2))."""
    if delay < 0:
        raise InputError(f"a delay of {delay} message times makes no sense; give 0 or more")
    return Fraction(1) if ranks == 2 else min(Fraction(1), delay * Fraction(ranks - 1, ranks - 2))


def _after_arrival(ranks: int, reduced: Sequence[Segment], raw: Sequence[Segment], first_round: int) -> Transfers:
    """Swap and gather the reduced segments, then scatter and spread the raw groups, from `first_round` on.

    Both parts fill all ports, so one after the other meets T(d). In the first round only the straggler's port is
    full; the first raw groups, which have rounds of their own, fill the others' meanwhile.
    """
    moves = Moves()
    for t, part in enumerate(reduced):
        # The straggler's pieces first: all else of this segment waits for them.
        moves.swap(first_round + t, ranks - 1, part.owner, part.chunks, phase=COMPLETION)
        _exchange(moves, first_round + t + 1, part, range(ranks - 1), reduce=False, phase=COMPLETION)
    scatter_round = first_round + len(reduced) + 1 if reduced else first_round
    for g, group in enumerate(raw):
        _exchange(moves, scatter_round + g, group, range(ranks), reduce=True, phase=SYNCHRONOUS)
        _exchange(moves, scatter_round + len(raw) + g, group, range(ranks), reduce=False, phase=SYNCHRONOUS)
    return moves.build()


def _doubling(segments: int, fine: bool) -> list[int]:
    """Raw segments in groups of 1, 1, 2, 4, …, of which an owner has one piece: few messages in all.

    `fine`: there is a completion. A message cannot be interrupted, and one that holds many segments would keep a port
    from the completion's next swap. Without one they are all one group.
    """
    groups: list[int] = []
    while (left := segments - sum(groups)) > 0:
        groups.append(min(left, max(1, sum(groups))) if fine else left)
    return groups


def _reduce(moves: Moves, round: int, part: Segment, early: int) -> None:
    _exchange(moves, round, part, range(early), reduce=True, phase=PREWORK)


def _exchange(moves: Moves, round: int, part: Segment, ranks: range, *, reduce: bool, phase: int) -> None:
    """Everyone sends each owner its pieces (`reduce`), or each owner sends its pieces to everyone.

    Rank r turns to r+1 first, then r+2, …: at any moment every rank is sent to by one other.
    """
    for distance in range(1, len(ranks)):
        other = (part.owner - distance) % len(ranks) if reduce else (part.owner + distance) % len(ranks)
        src, dst = (other, part.owner) if reduce else (part.owner, other)
        moves.move(round, src, dst, part.chunks, reduce=int(reduce), phase=phase)
