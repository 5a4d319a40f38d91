"""Pairs of steps of one rank that touch the same memory, one of them writing, with nothing to order them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latecomer.codegen.graph import StepGraph
from latecomer.codegen.symbolic import Layout, Location
from latecomer.schedules.program import READS_SRC, WRITES_DST, Program, Step

Place = tuple[int, Location]
"""(rank, location)."""


@dataclass(frozen=True)
class Hazard:
    """Two nodes, `first` before `second` in the order looked at; `queues`: full queues order them after all."""

    first: int
    second: int
    location: Location
    queues: bool


def hazards(program: Program, graph: StepGraph, order: Sequence[int], in_place: bool) -> list[Hazard]:
    """Unordered pairs; none where every interleaving makes the same accesses in the same order.

    Before: `order` is one that the program allows. O(steps of a rank squared / 64) without races.
    """
    accesses = _Accesses(graph, order)
    layouts = {gpu.id: Layout(program, gpu.id, in_place) for gpu in program.gpus}
    for node in order:
        rank = graph.nodes[node].gpu
        read, written = touched(graph.nodes[node].what, layouts[rank])
        for location in read:
            accesses.read(node, (rank, location))
        for location in written:
            accesses.write(node, (rank, location))
    return list(accesses.found.values())


def touched(step: Step, layout: Layout) -> tuple[list[Location], list[Location]]:
    """Locations that a step reads, and those that it writes; `re` reads both its operands."""
    read = [layout.at(step.srcbuf, step.srcoff + c) for c in range(step.cnt)] if step.type in READS_SRC else []
    written = [layout.at(step.dstbuf, step.dstoff + c) for c in range(step.cnt)] if step.type in WRITES_DST else []
    return (read if step.type != "re" else [*read, *written]), written


def overlaps(step: Step, layout: Layout) -> bool:
    """A step reads and writes ranges that overlap without being the same: whose threads are first decides."""
    if step.cnt == 1 or step.type not in READS_SRC & WRITES_DST:
        return False
    src, dst = layout.at(step.srcbuf, step.srcoff), layout.at(step.dstbuf, step.dstoff)
    return src[0] == dst[0] and 0 < abs(src[1] - dst[1]) < step.cnt


class _Accesses:
    """The accesses so far, per place, and the pairs of them that nothing orders.

    An access that comes after a write comes after all that this write comes after; so what is behind a write is only
    looked at where an access is not ordered with that write. Within a rank reachability is bits of an integer; only
    what that leaves open is searched across ranks.
    """

    def __init__(self, graph: StepGraph, order: Sequence[int]) -> None:
        self.found: dict[tuple[int, int], Hazard] = {}
        self._graph = graph
        self._position = {node: i for i, node in enumerate(order)}
        self._base = _base(graph)
        self._ancestors = _ancestors(graph, order)
        self._writers: dict[Place, list[int]] = {}
        self._readers: dict[Place, list[int]] = {}
        self._behind: dict[tuple[int, Location], tuple[list[int], list[int]]] = {}
        """(write, location) → writers and readers that come before it."""

    def read(self, node: int, place: Place) -> None:
        self._ordered_before(node, place, writes=False)
        self._readers.setdefault(place, []).append(node)

    def write(self, node: int, place: Place) -> None:
        """What is not ordered with this write stays in view: it may clash with later ones too."""
        writers, readers = self._behind[node, place[1]] = self._ordered_before(node, place, writes=True)
        self._writers[place] = [*(w for w in self._writers.get(place, ()) if w not in writers), node]
        self._readers[place] = [r for r in self._readers.get(place, ()) if r not in readers]

    def _ordered_before(self, node: int, place: Place, writes: bool) -> tuple[list[int], list[int]]:
        """Looks at all that may run beside `node`. The nearest (writers, readers) that are ordered before it."""
        before: tuple[list[int], list[int]] = ([], [])
        open_ = [(w, True) for w in self._writers.get(place, ())]
        if writes:
            open_ += [(r, False) for r in self._readers.get(place, ())]
        seen = set(open_)
        while open_:
            earlier, wrote = open_.pop()
            if self._ordered(earlier, node, place[1]):
                before[0 if wrote else 1].append(earlier)
            elif wrote:
                hidden, read = self._behind.get((earlier, place[1]), ((), ()))
                more = [(w, True) for w in hidden] + ([(r, False) for r in read] if writes else [])
                open_ += [item for item in more if item not in seen]
                seen.update(more)
        return before

    def _ordered(self, first: int, second: int, location: Location) -> bool:
        if first == second or self._ancestors[second] >> (first - self._base[second]) & 1:
            return True
        if (first, second) in self.found:
            return False
        if _reaches(self._graph, first, second, self._position, full=False):
            return True
        queues = _reaches(self._graph, first, second, self._position, full=True)
        self.found[first, second] = Hazard(first, second, location, queues)
        return False


class Reach:
    """Which nodes come before which, waits for full queues included."""

    def __init__(self, graph: StepGraph, order: Sequence[int]) -> None:
        self._graph = graph
        self._position = {node: i for i, node in enumerate(order)}
        self._known: dict[tuple[int, int], bool] = {}

    def before(self, first: int, second: int) -> bool:
        """`first` is over before `second` starts, whatever the timing."""
        if self._position[first] >= self._position[second]:
            return False
        pair = first, second
        if pair not in self._known:
            self._known[pair] = _reaches(self._graph, first, second, self._position, full=True)
        return self._known[pair]


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
