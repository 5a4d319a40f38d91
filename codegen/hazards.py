"""Pairs of steps of one rank that touch the same memory, one of them writing, with nothing to order them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latecomer.codegen.graph import StepGraph
from latecomer.codegen.symbolic import Layout, Location
from latecomer.schedules.program import READS_SRC, WRITES_DST, Program


@dataclass(frozen=True)
class Hazard:
    """Two nodes, `first` before `second` in the order looked at; `queues`: full queues order them after all."""

    first: int
    second: int
    location: Location
    queues: bool


def hazards(program: Program, graph: StepGraph, order: Sequence[int], in_place: bool) -> list[Hazard]:
    """Unordered pairs; none where every interleaving makes the same accesses in the same order.

    Before: `order` is one that the program allows. An access that is ordered with the conflicting ones next
    to it is so with those beyond, so only they are looked at. Within a rank reachability is bits of an
    integer; only what that leaves open is searched across ranks. O(steps of a rank squared / 64).
    """
    position = {node: i for i, node in enumerate(order)}
    ancestors = _ancestors(graph, order)
    layouts = {gpu.id: Layout(program, gpu.id, in_place) for gpu in program.gpus}
    writers: dict[tuple[int, Location], list[int]] = {}
    readers: dict[tuple[int, Location], list[int]] = {}
    found: dict[tuple[int, int], Hazard] = {}

    def ordered(first: int, second: int, location: Location) -> bool:
        if first == second or ancestors[second] >> (first - base[second]) & 1:
            return True
        if (first, second) in found:
            return False
        if _reaches(graph, first, second, position, full=False):
            return True
        queues = _reaches(graph, first, second, position, full=True)
        found[first, second] = Hazard(first, second, location, queues)
        return False

    base = _base(graph)
    for node in order:
        rank, _, _, step, _ = graph.nodes[node]
        at = layouts[rank].at
        reads = [at(step.srcbuf, step.srcoff + c) for c in range(step.cnt)] if step.type in READS_SRC else []
        writes = [at(step.dstbuf, step.dstoff + c) for c in range(step.cnt)] if step.type in WRITES_DST else []
        for location in reads if step.type != "re" else [*reads, *writes]:
            for writer in writers.get((rank, location), ()):
                ordered(writer, node, location)
            readers.setdefault((rank, location), []).append(node)
        for location in writes:
            # What is not ordered with this write may clash with later ones too.
            at_once = [r for r in readers.pop((rank, location), ()) if not ordered(r, node, location)]
            if at_once:
                readers[rank, location] = at_once
            earlier = [w for w in writers.get((rank, location), ()) if not ordered(w, node, location)]
            writers[rank, location] = [*earlier, node]
    return list(found.values())


def _base(graph: StepGraph) -> list[int]:
    """Per node, the first node of its rank: bits are counted from there."""
    first: dict[int, int] = {}
    return [first.setdefault(n.gpu, i) for i, n in enumerate(graph.nodes)]


def _ancestors(graph: StepGraph, order: Sequence[int]) -> list[int]:
    """Per node, the nodes of its own rank that are over before it by order within the rank alone, as bits."""
    base = _base(graph)
    bits = [0] * len(graph.nodes)
    for node in order:
        known = 0
        for earlier in graph.local[node]:
            known |= bits[earlier] | 1 << (earlier - base[node])
        bits[node] = known
    return bits


def _reaches(graph: StepGraph, first: int, second: int, position: dict[int, int], full: bool) -> bool:
    """Is there a path of edges from `first` to `second`? Searched backwards, never before `first` in the order."""
    limit = position[first]
    seen = {second}
    stack = [second]
    while stack:
        node = stack.pop()
        for earlier in (*graph.before[node], *graph.full[node]) if full else graph.before[node]:
            if earlier == first:
                return True
            if earlier not in seen and position[earlier] > limit:
                seen.add(earlier)
                stack.append(earlier)
    return False
