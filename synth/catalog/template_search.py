"""Solves for a rotational template: which age each slot receives and sends (see `algorithms/rotation.py`).

CP-SAT with one worker, a fixed seed and a limit in deterministic time, so the same answer everywhere.
"""

from __future__ import annotations

from typing import Any

from latecomer.synth.algorithms.completion import log2_ceil


def search(ranks: int, oldest: int, seed: int, limit: float) -> tuple[list[int], list[int]] | None:
    """Ages that slots 0 … n-2 receive and send (0 for slot 0's send), ages at most `oldest`; None if not found.

    Place i of a chunk is the rank i after its owner; in the round in which the chunk has age a, that rank is in slot
    a - 1 - i. Constraints: every place receives the chunk at one age, the owner alone at age 1; every slot
    receives one chunk and, but for slot 0 which feeds the straggler, sends one; a place sends only after it
    received; at each age from 2 on as many send as receive; the places' delays add up to (L-1)·N, so that chunks
    arrive as fast as they leave and L-1 are under way to every rank.
    """
    from ortools.sat.python import cp_model

    early, levels = ranks - 1, log2_ceil(ranks)
    ages = range(1, oldest + 1)
    model = cp_model.CpModel()
    receives: Any = [[model.new_bool_var(f"g{i},{a}") for a in range(oldest + 1)] for i in range(early)]
    sends: Any = [[model.new_bool_var(f"s{i},{a}") for a in range(oldest + 1)] for i in range(early)]
    for i in range(early):
        model.add(receives[i][0] == 0)
        model.add(receives[i][1] == int(i == 0))
        model.add_exactly_one(receives[i][1:])
        for a in range(oldest + 1):
            model.add(sends[i][a] <= sum(receives[i][1:a]))
    for slot in range(early):
        model.add_exactly_one(receives[(a - 1 - slot) % early][a] for a in ages)
        model.add(sum(sends[(a - 1 - slot) % early][a] for a in ages) == int(slot != 0))
    for a in ages[1:]:
        model.add(sum(row[a] for row in receives) == sum(row[a] for row in sends))
    model.add(sum((a - 1) * row[a] for row in receives for a in ages) == (levels - 1) * early)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    # Linear relaxations of all constraints: the balance of every age is what makes large n hard without.
    solver.parameters.linearization_level = 2
    solver.parameters.max_deterministic_time = limit
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    by_slot = [
        {(a - 1 - i) % early: a for i in range(early) for a in ages if solver.value(var[i][a])}
        for var in (receives, sends)
    ]
    return [by_slot[0][y] for y in range(early)], [by_slot[1].get(y, 0) for y in range(early)]
