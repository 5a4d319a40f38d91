"""Solves for the last 2(L-1) rounds of a rotational schedule, where the template would run past chunk K-1.

Chunks and rounds are counted from K (chunk -1 is the last; round -1 first sends it), ranks from the owner of
chunk 0: chunk e's owner is e mod N. When the tail begins, every early rank misses 2(L-1) chunks, the L-1 not yet
sent included: it must receive one of them in every round. In rounds below 0 the straggler swaps the round's
chunk with its owner; in the others it may send chunk -1 again.

All but the last few rounds are chosen one at a time, each a minimum-cost flow sender → chunk → receiver that serves
everyone, rare chunks first, ties by a seeded random cost. CP-SAT then decides whether the last rounds can be
finished. On failure, the next seed. The costs decide nothing about correctness: tests check the result.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from latecomer.synth.algorithms.completion import log2_ceil

Round = tuple[dict[int, int], dict[int, int]]
"""(rank → chunk it sends, rank → chunk it receives), the straggler's swap left out."""


@dataclass
class _State:
    """`missing[z]`: the chunks that early rank z does not hold in full; it holds all others already sent."""

    early: int
    missing: list[set[int]]

    @property
    def oldest(self) -> int:
        return min(min(chunks) for chunks in self.missing)

    def holds(self, rank: int, chunk: int, round: int) -> bool:
        """At the start of `round`, an early rank or the straggler (rank N; asked for the last chunk only)."""
        if rank == self.early:
            return chunk == -1 and round >= 0
        return chunk < round and chunk not in self.missing[rank]

    def feeds(self, rank: int, round: int) -> bool:
        """This rank's port serves the straggler in this round."""
        return round < 0 and round % self.early == rank


def search(
    ranks: int, receives: Sequence[int], seeds: Sequence[int], *, exact_rounds: int = 3, limit: float = 5.0
) -> list[Round] | None:
    """Rounds -(L-1) … L-2 after the template `receives` (age by slot), or None when no seed leads to an end."""
    levels = log2_ceil(ranks)
    rounds = range(1 - levels, levels - 1)
    for seed in seeds:
        found = _attempt(ranks - 1, receives, rounds, len(rounds) - min(exact_rounds, len(rounds)), seed, limit)
        if found is not None:
            return found
    return None


def _attempt(
    early: int, receives: Sequence[int], rounds: range, by_flow: int, seed: int, limit: float
) -> list[Round] | None:
    """`by_flow` rounds one at a time, the rest exactly."""
    dice = random.Random(seed)
    start = rounds[0]
    state = _State(
        early,
        [
            {e for e in range(start - max(receives), 0) if e >= start or e + _age(receives, (z - e) % early) > start}
            for z in range(early)
        ],
    )
    found = []
    for t in rounds[:by_flow]:
        step = _one_round(state, t, dice)
        if step is None:
            return None
        found.append(step)
        _apply(state, t, step)
    end = _last_rounds(state, rounds[by_flow:], seed, limit)
    return None if end is None else found + end


def _age(receives: Sequence[int], place: int) -> int:
    """The age at which the rank `place` after the owner receives: it is then in slot age - 1 - place."""
    return next(a for a in range(1, max(receives) + 1) if receives[(a - 1 - place) % len(receives)] == a)


def _apply(state: _State, t: int, step: Round) -> None:
    for rank, chunk in step[1].items():
        state.missing[rank].remove(chunk)
    if t < 0:
        state.missing[t % state.early].remove(t)


def _one_round(state: _State, t: int, dice: random.Random) -> Round | None:
    """One round in which every early rank receives, or None where the flow cannot serve all."""
    from ortools.graph.python import min_cost_flow

    early, chunks = state.early, range(state.oldest, min(t, 0))
    source, sink, sender, receiver, node = 0, 1, 2, 3 + early, 3 + 2 * early - state.oldest
    flow: Any = min_cost_flow.SimpleMinCostFlow()
    offers: list[tuple[int, int]] = []
    takes: list[tuple[int, int]] = []

    def arc(tail: int, head: int, cost: int) -> None:
        flow.add_arc_with_capacity_and_unit_cost(tail, head, 1, cost)

    weight = dice.choice([200, 400, 800])
    for rank in range(early + 1):
        for e in chunks:
            if not state.feeds(rank, t) and state.holds(rank, e, t):
                offers.append((rank, e))
                arc(sender + rank, node + e, dice.randrange(100))
    for rank in range(early):
        for e in chunks:
            if not state.feeds(rank, t) and e in state.missing[rank]:
                takes.append((rank, e))
                arc(node + e, receiver + rank, weight * (-1 - e) + dice.randrange(400))
    # An older chunk costs more: the young ones are rare and must multiply.
    for rank in range(early + 1):
        arc(source, sender + rank, 0)
    for rank in range(early):
        arc(receiver + rank, sink, 0)
    served = early - (t < 0)
    flow.set_node_supply(source, served)
    flow.set_node_supply(sink, -served)
    if flow.solve() != flow.OPTIMAL:
        return None
    used = [flow.flow(i) > 0 for i in range(len(offers) + len(takes))]
    return (
        {rank: e for (rank, e), on in zip(offers, used, strict=False) if on},
        {rank: e for (rank, e), on in zip(takes, used[len(offers) :], strict=True) if on},
    )


def _last_rounds(state: _State, rounds: range, seed: int, limit: float) -> list[Round] | None:
    """The rounds from the state on to the end, by CP-SAT; None if there are none or the limit was reached."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    takes = _takes(model, state, rounds)
    offers = _offers(model, state, rounds, takes)
    for t in rounds:
        for e in range(state.oldest, min(t, 0)):
            model.add(
                sum(v for (_, c, u), v in takes.items() if (c, u) == (e, t))
                == sum(v for (_, c, u), v in offers.items() if (c, u) == (e, t))
            )
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = limit
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    chosen = [{key: solver.value(v) for key, v in group.items()} for group in (offers, takes)]
    return [
        (
            {r: e for (r, e, u), on in chosen[0].items() if on and u == t},
            {r: e for (r, e, u), on in chosen[1].items() if on and u == t and not (state.feeds(r, t) and e == t)},
        )
        for t in rounds
    ]


def _takes(model: Any, state: _State, rounds: range) -> dict[tuple[int, int, int], Any]:
    """(rank, chunk, round) → receives: every missing chunk once, one in every round; an owner from the straggler."""
    takes: dict[tuple[int, int, int], Any] = {}
    for rank in range(state.early):
        for e in state.missing[rank]:
            from_straggler = e >= rounds[0] and state.feeds(rank, e)
            takes |= {(rank, e, t): model.new_bool_var("") for t in rounds if (t == e if from_straggler else t > e)}
            model.add_exactly_one(takes[rank, e, t] for t in rounds if (rank, e, t) in takes)
        for t in rounds:
            model.add_exactly_one(v for (r, _, u), v in takes.items() if (r, u) == (rank, t))
    return takes


def _offers(
    model: Any, state: _State, rounds: range, takes: dict[tuple[int, int, int], Any]
) -> dict[tuple[int, int, int], Any]:
    """(rank, chunk, round) → sends: one chunk a round at most, and only what is held by then."""
    offers: dict[tuple[int, int, int], Any] = {}
    for rank in range(state.early + 1):
        for t in rounds:
            if state.feeds(rank, t):
                continue
            for e in range(state.oldest, min(t, 0)):
                before = [takes[rank, e, u] for u in rounds if u < t and (rank, e, u) in takes]
                if before or state.holds(rank, e, t):
                    offers[rank, e, t] = model.new_bool_var("")
                    if before:
                        model.add(offers[rank, e, t] <= sum(before))
            model.add_at_most_one(v for (r, _, u), v in offers.items() if (r, u) == (rank, t))
    return offers
