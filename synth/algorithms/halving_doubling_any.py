"""Halving and doubling for any number of ranks, by 3-2 elimination: AllReduce in 2⌈log2 n⌉ rounds.

Source: Rabenseifner & Träff, "More Efficient Reduction Algorithms for Non-Power-of-Two Number of Processors in
Message-Passing Parallel Systems", EuroPVM/MPI 2004. With h = ⌊log2 n⌋ a power of two takes 2h rounds and volume
2(n-1)/n, as `halving_doubling`; any other n takes 2(h+1) rounds and at most 2(1.5 - 1/2^h)·S·β: few latencies, but up
to half as much volume again as the ring or the circulant AllReduce, which has as few rounds: a baseline.

Halving: the ranks that are responsible for the same part of the message pair up, each takes one half of the part
and gives away the other. Where their number is odd, three of them do the work of a pair in two rounds: p0 and
p1 swap halves; then p1 passes its half's sum on to p2, which gives its other half to p0. p1 is done, p0 and p2
go on, one round later than the rest. p2 is not needed in the first of the two rounds: so a rank that is a round
behind is p2 in the next triple, or makes one pair late, and the ranks are never more than one round behind. After
h halvings 2^h ranks own 1/2^h each. Doubling is the same backwards, copying. O(n·K).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latecomer.schedules.chunks import Chunks
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.transfers import Moves, Transfers
from latecomer.synth.algorithms.assembly import synchronous
from latecomer.synth.algorithms.completion import require_size


@dataclass(frozen=True)
class _Group:
    """Ranks responsible for parts `first` … `end`-1. The last of them is a round behind if `behind`."""

    members: tuple[int, ...]
    behind: bool
    first: int
    end: int


def schedule(ranks: int, chunks: int | None = None) -> Schedule:
    """AllReduce for any n: 2⌈log2 n⌉ rounds. 2^⌊log2 n⌋ chunks, or (evenly only) a multiple of it."""
    require_size(ranks, chunks or 1)
    parts = 1 << (ranks.bit_length() - 1)
    chunks = parts if chunks is None else chunks
    halving, owner_of = _halving(ranks, parts, np.arange(chunks) % parts)
    last = halving.rounds - 1
    doubling = Transfers.of(
        2 * last + 1 - halving.round,
        halving.dst,
        halving.src,
        halving.chunk,
        0 * halving.reduce,
        halving.phase,
        halving.dst_slot,
        halving.src_slot,
    )
    owners = [owner_of[c % parts] for c in range(chunks)]
    return synchronous("halving_doubling_any", ranks, Transfers.concat(halving, doubling), Chunks.equal(owners))


def _halving(ranks: int, parts: int, part_of: np.ndarray) -> tuple[Transfers, dict[int, int]]:
    """The ReduceScatter, and for each part the rank that ends with it."""
    moves, groups, t = Moves(), [_Group(tuple(range(ranks)), False, 0, parts)], 0
    while groups[0].end - groups[0].first > 1:
        halves: list[_Group] = []
        for group in groups:
            halves += _halve(moves, t, group, part_of)
        groups, t = halves, t + 1
    return moves.build(), {group.first: group.members[0] for group in groups}


def _halve(moves: Moves, t: int, group: _Group, part_of: np.ndarray) -> tuple[_Group, _Group]:
    """One halving of a group, in round `t` and, for a rank that is behind or a triple, round t + 1."""
    middle = (group.first + group.end) // 2
    low = np.flatnonzero((part_of >= group.first) & (part_of < middle))
    high = np.flatnonzero((part_of >= middle) & (part_of < group.end))
    members, odd = group.members, len(group.members) % 2
    pairs = len(members) // 2 - odd
    takes_low, takes_high = list(members[: 2 * pairs : 2]), list(members[1 : 2 * pairs : 2])
    for number, (a, b) in enumerate(zip(takes_low, takes_high, strict=True)):
        # The last member, if it is behind and not in a triple, is in the last pair.
        start = t + (group.behind and not odd and number == pairs - 1)
        moves.reduce(start, b, a, low)
        moves.reduce(start, a, b, high)
    if odd:
        p0, p1, p2 = members[2 * pairs :]
        moves.reduce(t, p1, p0, low)
        moves.reduce(t, p0, p1, high)
        moves.reduce(t + 1, p1, p2, high)
        moves.reduce(t + 1, p2, p0, low)
        takes_low.append(p0)
        takes_high.append(p2)
    behind = bool(odd or group.behind)
    return (_Group(tuple(takes_low), behind, group.first, middle), _Group(tuple(takes_high), behind, middle, group.end))
