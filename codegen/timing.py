"""What depends on timing, where accesses race: a read may see any write that nothing puts after it or hides from it.

If all that a read may see is the same value, it does not matter who comes first; by induction along the order what is
written is then the same in every interleaving. Else the value is *unsure*, and so is what is made of it; a race
matters if a result is unsure. Additions (`re`) read and write apart: two of them at once may lose one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from latecomer.codegen.graph import StepGraph
from latecomer.codegen.hazards import Place, Reach, touched
from latecomer.codegen.symbolic import UNSURE, Bad, Layout, Location, Trace, Value, initial, interpret
from latecomer.schedules.program import Program

MOST: Final = 200_000
"""Triples of accesses to one place that are looked at; where there are more, it counts as unsure."""


def unsure_places(
    program: Program, graph: StepGraph, order: Sequence[int], in_place: bool, racing: Collection[Place]
) -> set[Place]:
    """Those of `racing` that make a result depend on timing. O(places · accesses³ + runs of the program)."""
    if not racing:
        return set()
    layouts = {gpu.id: Layout(program, gpu.id, in_place) for gpu in program.gpus}
    sights = _sights(program, graph, order, layouts, set(racing))
    start = {rank: initial(layout) for rank, layout in layouts.items()}
    unsure: set[tuple[int, Location]] = set()
    while True:
        trace = Trace(unsure)
        wrong = interpret(program, graph, order, in_place, trace)
        found = {sight for sight, seen in sights.items() if _differ(sight, seen, trace, start, graph)}
        if found <= unsure:
            break
        unsure |= found
    if not any(outcome.code == UNSURE for outcome in wrong):
        return set()
    return {(_rank(which, graph), location) for which, location in unsure}


def _rank(which: int, graph: StepGraph) -> int:
    return graph.nodes[which].gpu if which >= 0 else -1 - which


def _differ(
    sight: tuple[int, Location], seen: Sequence[int] | None, trace: Trace, start: dict[int, dict[Location, Value]],
    graph: StepGraph,
) -> bool:
    if seen is None:
        return True
    which, location = sight
    values = {
        trace.written[writer, location] if writer >= 0 else start[_rank(which, graph)].get(location) for writer in seen
    }
    return len(values) > 1 or any(isinstance(value, Bad) and value.code == UNSURE for value in values)


def _sights(
    program: Program, graph: StepGraph, order: Sequence[int], layouts: dict[int, Layout], racing: set[Place]
) -> dict[tuple[int, Location], list[int] | None]:
    """(reading node, or -1 - rank for the end; location) → the writes it may see.

    -1 among them: it may see what was there at the start. None: too many to look at.
    """
    reach = Reach(graph, order)
    writers: dict[Place, list[int]] = {place: [] for place in racing}
    readers: dict[Place, list[int]] = {place: [] for place in racing}
    for node in order:
        rank = graph.nodes[node].gpu
        read, wrote = touched(graph.nodes[node].what, layouts[rank])
        for location in read:
            if (rank, location) in racing:
                readers[rank, location].append(node)
        for location in wrote:
            if (rank, location) in racing:
                writers[rank, location].append(node)
    sights: dict[tuple[int, Location], list[int] | None] = {}
    for (rank, location), writes in writers.items():
        for node in (*readers[rank, location], -1 - rank):
            many = len(writes) ** 2 * (len(readers[rank, location]) + 1) > MOST
            sights[node, location] = None if many else _seen(node, writes, reach)
    return sights


def _seen(node: int, writes: Sequence[int], reach: Reach) -> list[int]:
    """What `node` may see: no write that comes after it, or that another write before it hides."""
    before = [w for w in writes if w != node and (node < 0 or reach.before(w, node))]
    beside = [w for w in writes if w != node and node >= 0 and not reach.before(w, node) and not reach.before(node, w)]
    seen = [w for w in (*before, *beside) if not any(reach.before(w, hiding) for hiding in before)]
    return seen if before else [*seen, -1]
