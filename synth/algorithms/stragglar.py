"""StragglAR as published (Devraj et al., "Efficient AllReduce with Stragglers", arXiv 2505.23523), for even n.

The early ranks ReduceScatter n-1 chunks. Then, in round c < n-1, the straggler and the owner of chunk c swap and add,
which finishes it, while all other ranks pair up: a pair copies one finished chunk one way, or one each way.

* n = 2^L: K = n-1, n-2 + log2 n rounds. With K = n-1 the block tiling (`latecomer.synth.algorithms.tiling`) can be
  paired
  like that, so its template is used here: a rank in the first slot of a block sends a chunk of age L+1 and receives a
  younger one, a rank in another slot the other way round, and as many of the former receive age g as of the latter
  send it. So partners swap.
* Other even n: no construction is known; every round takes a maximum-weight matching. The paper proves no bound.
  Nor does it give weights that reproduce its counts, so ours differ from them by a round here and there
  (`benchmarks/RESULTS.md` has both).

The paper has no odd n, no other K, and nothing to do when the delay is shorter than the ReduceScatter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.errors import NotApplicable
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.transfers import Moves, Transfers
from latecomer.synth.algorithms import ring, tiling
from latecomer.synth.algorithms.assembly import completed
from latecomer.synth.algorithms.completion import Completion, least_rounds, log2_ceil, require_size


def schedule(ranks: int, chunks: int | None = None) -> Schedule:
    """The published schedule; `NotApplicable` for odd n and for any number of chunks but n-1."""
    early = ranks - 1
    require_size(ranks, 1)
    if ranks % 2:
        raise NotApplicable(
            f"the published schedule needs an even number of ranks, not {ranks}; circulant serves any number "
            "(K + ⌈log2 n⌉ - 1 rounds), and so does all_pairs where ports are shared"
        )
    if chunks not in (None, early):
        raise NotApplicable(
            f"the published schedule has exactly n-1 = {early} chunks, not {chunks}; "
            "tiling and circulant take any number"
        )
    transfers = _power_of_two(ranks) if ranks & early == 0 else _matched(ranks)
    completion = Completion(transfers, tuple(range(early)), transfers.rounds)
    return completed("stragglar", ranks, ring.prework(early, completion.owners), completion)


def _power_of_two(ranks: int) -> Transfers:
    """n-2 + log2 n rounds; O(n) a round."""
    early = ranks - 1
    receives, sends = tiling.template(log2_ceil(ranks))
    return tiling.unroll(receives, _partners(receives, sends), early, early, least_rounds(ranks, early))


def _partners(receives: NDArray[np.int64], sends: NDArray[np.int64]) -> NDArray[np.int64]:
    """For every slot the slot it swaps with (-1 for slot 0, which swaps with the straggler).

    before: receives [1, 2, 3], sends [0, 3, 2] (L = 2)   after: [-1, 2, 1]
    """
    partner = np.full(len(receives), -1)
    oldest = receives.max()
    for age in range(2, int(oldest)):
        first, other = np.flatnonzero(receives == age), np.flatnonzero(sends == age)
        partner[first], partner[other] = other, first
    return partner


def _matched(ranks: int) -> Transfers:
    """One maximum-weight matching a round until everyone holds everything. O(rounds · n³)."""
    search = _Search(ranks)
    moves = Moves()
    while not search.done():
        t, owner, straggler = search.round, search.round, ranks - 1
        pairs = search.matching()
        if t < ranks - 1:
            moves.swap(t, straggler, owner, t)
        for src, dst, chunk in pairs:
            moves.copy(t, src, dst, chunk)
        search.advance(pairs)
    return moves.build()


class _Search:
    """Who holds which finished chunks, and what a pairing of the next round is worth."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.early, self.levels, self.round = ranks, ranks - 1, log2_ceil(ranks), 0
        self.holds = [0] * ranks  # bit c: holds the full sum of chunk c

    def done(self) -> bool:
        return all(held == (1 << self.early) - 1 for held in self.holds)

    def matching(self) -> list[tuple[int, int, int]]:
        """(source, destination, chunk) of all copies of this round."""
        import networkx as nx

        swapping = {self.early, self.round} if self.round < self.early else set()
        free = [rank for rank in range(self.ranks) if rank not in swapping]
        graph, copies = nx.Graph(), {}
        for i, a in enumerate(free):
            for b in free[i + 1 :]:
                useful = [(*best, src, dst) for src, dst in ((a, b), (b, a)) if (best := self._best(src, dst))]
                if useful:
                    copies[a, b] = [(src, dst, chunk) for _, chunk, src, dst in useful]
                    # The last digits make the optimum unique: the result does not depend on how the solver breaks ties.
                    graph.add_edge(a, b, weight=(sum(u[0] for u in useful) << 48) + self._tie(a, b))
        matched = sorted(tuple(sorted(pair)) for pair in nx.max_weight_matching(graph))
        return [copy for pair in matched for copy in copies[pair]]

    def _best(self, src: int, dst: int) -> tuple[int, int] | None:
        """(value, chunk) of the most valuable chunk that `src` holds and `dst` lacks."""
        lacking = self.holds[src] & ~self.holds[dst]
        chunks = [c for c in range(self.early) if lacking >> c & 1]
        return max(((self._value(c, dst), c) for c in chunks), default=None)

    def _value(self, chunk: int, dst: int) -> int:
        """A young chunk must double every round, so whoever gets it must be free to pass it on: it should hold no
        other young chunk and not be due to meet the straggler meanwhile. Old chunks fill the rest, oldest first."""
        age = self.round - chunk + 1
        if age > self.levels:
            return 1000 + 10 * min(age, 3 * self.levels)
        spreading = self.holds[dst] >> max(0, self.round - self.levels + 1) != 0 and dst != self.early
        due = self.round < dst < min(self.early, self.round + self.levels + 1 - age)
        return 500 if spreading or due else 2000

    def _tie(self, a: int, b: int) -> int:
        """A fixed pseudo-random number below 2^40, different for every pair and round (splitmix64)."""
        x = ((self.round * self.ranks + a) * self.ranks + b + 1) * 0x9E3779B97F4A7C15 % 2**64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return (x ^ x >> 31) >> 24

    def advance(self, copies: list[tuple[int, int, int]]) -> None:
        for _, dst, chunk in copies:
            self.holds[dst] |= 1 << chunk
        if self.round < self.early:
            self.holds[self.early] |= 1 << self.round
            self.holds[self.round] |= 1 << self.round
        self.round += 1
