"""The order in which a ring visits the ranks: by number, or along the widest links where neighbours have none."""

from __future__ import annotations

from typing import Final

from latecomer.schedules.errors import NotApplicable
from latecomer.schedules.topology import Topology

MAX_STEPS: Final = 200_000
"""Of the search for a cycle; a box of 16 GPUs takes far fewer."""


def ring_order(topology: Topology) -> tuple[int, ...]:
    """Ranks in ring order: each has a route to the next, and the narrowest of these routes is as wide as possible.

    Depth-first search for a Hamiltonian cycle, from the widest rate down; the first in order of rank is taken. Raises
    `NotApplicable` where there is no such cycle (or none is found in `MAX_STEPS` steps).
    """
    ranks = topology.ranks
    if all(topology.has_route(rank, (rank + 1) % ranks) for rank in range(ranks)):
        return tuple(range(ranks))
    width = {
        (a, b): topology.pair_gbs(a, b)
        for a in range(ranks)
        for b in range(ranks)
        if a != b and topology.has_route(a, b)
    }
    for least in sorted(set(width.values()), reverse=True):
        found = _cycle(ranks, {pair for pair, gbs in width.items() if gbs >= least})
        if found:
            return found
    raise NotApplicable(
        f"a ring needs links that lead once round all GPUs, and {topology.name} has none that do; "
        "use a topology with a switch"
    )


def _cycle(ranks: int, pairs: set[tuple[int, int]]) -> tuple[int, ...] | None:
    path, steps = [0], 0
    untried = [_next(0, pairs, ranks)]
    while path and steps < MAX_STEPS:
        steps += 1
        if len(path) == ranks and (path[-1], 0) in pairs:
            return tuple(path)
        while untried[-1] and untried[-1][-1] in path:
            untried[-1].pop()
        if untried[-1]:
            path.append(untried[-1].pop())
            untried.append(_next(path[-1], pairs, ranks))
        else:
            path.pop()
            untried.pop()
    return None


def _next(rank: int, pairs: set[tuple[int, int]], ranks: int) -> list[int]:
    """Where one can go from `rank`, the lowest number last."""
    return [other for other in reversed(range(ranks)) if (rank, other) in pairs]
