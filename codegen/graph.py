"""`StepGraph`: the steps of all ranks as nodes, and what must be over before what.

Edges: program order in a threadblock; a posted step before the step that waits for it; the k-th send of a
connection before its k-th receive; and, at a queue capacity of C, the k-th receive before the (k+C)-th
send, which has no slot before. All but the last kind hold whatever the capacity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from latecomer.schedules.program import RECEIVES, SENDS, Gpu, Program, Step, Threadblock

CAPACITY = {"Simple": 2, "LL": 8, "LL128": 8}
"""Messages in flight on a connection before its sender blocks, per protocol."""


class Node(NamedTuple):
    """One step: where it is, and what it is."""

    gpu: int
    tb: int
    step: int
    what: Step
    line: int


class Connection(NamedTuple):
    """(sender, receiver, channel)."""

    sender: int
    receiver: int
    channel: int


@dataclass
class StepGraph:
    """`before[v]`: nodes that are over before v starts (`full` ones: only because a queue is full)."""

    nodes: list[Node] = field(default_factory=list)
    of: dict[tuple[int, int], list[range]] = field(default_factory=dict)
    """(gpu, threadblock) → per step, its nodes: one where it was not split."""
    before: list[list[int]] = field(default_factory=list)
    full: list[list[int]] = field(default_factory=list)
    sends: dict[Connection, list[int]] = field(default_factory=lambda: defaultdict(list))
    receives: dict[Connection, list[int]] = field(default_factory=lambda: defaultdict(list))
    local: list[list[int]] = field(default_factory=list)
    """`before` without the edges from other ranks."""

    def where(self, node: int) -> str:
        """`gpu 1/tb 2/step 3` of a node."""
        n = self.nodes[node]
        return f"gpu {n.gpu}/tb {n.tb}/step {n.step} ({n.what.type})"


def posted(steps: Sequence[Step]) -> list[int | None]:
    """Per step, the first from it on that posts: that ends a wait for it. None: nobody does. O(steps)."""
    ends: list[int | None] = []
    later = None
    for s in range(len(steps) - 1, -1, -1):
        if steps[s].hasdep == 1 and steps[s].type != "nop":
            later = s
        ends.append(later)
    return ends[::-1]


def step_graph(program: Program, split: bool = False) -> StepGraph:
    """The graph of a program whose structure was found sound (ids, peers, matching, waits). O(steps).

    `split`: steps that move messages are taken apart into single chunks, as the runtimes do once messages are large: a
    forwarding step then sends its first chunk before it has its last, so fewer steps are ordered.
    """
    graph = StepGraph()
    for gpu in program.gpus:
        for block in gpu.threadblocks:
            _add_block(graph, gpu, block, split)
    for gpu in program.gpus:
        ends = {block.id: posted(block.steps) for block in gpu.threadblocks}
        for block in gpu.threadblocks:
            for step, nodes in zip(block.steps, graph.of[gpu.id, block.id], strict=True):
                if step.depid >= 0 and step.deps >= 0 and step.depid != block.id:
                    end = ends[step.depid][step.deps]
                    if end is not None:
                        earlier = graph.of[gpu.id, step.depid][end][-1]
                        graph.before[nodes[0]].append(earlier)
                        graph.local[nodes[0]].append(earlier)
    capacity = CAPACITY[program.protocol]
    for connection, receives in graph.receives.items():
        sends = graph.sends[connection]
        for k, receive in enumerate(receives):
            graph.before[receive].append(sends[k])
            if k + capacity < len(sends):
                graph.full[sends[k + capacity]].append(receive)
    return graph


def _add_block(graph: StepGraph, gpu: Gpu, block: Threadblock, split: bool) -> None:
    of = graph.of[gpu.id, block.id] = []
    start = len(graph.nodes)
    for s, step in enumerate(block.steps):
        line = block.lines[s] if block.lines else 0
        pieces = _pieces(step) if split else (step,)
        of.append(range(len(graph.nodes), len(graph.nodes) + len(pieces)))
        for node, piece in zip(of[-1], pieces, strict=True):
            graph.nodes.append(Node(gpu.id, block.id, s, piece, line))
            before = [node - 1] if node > start else []
            graph.before.append(before)
            graph.local.append(list(before))
            graph.full.append([])
            if step.type in SENDS:
                graph.sends[Connection(gpu.id, block.send, block.chan)].append(node)
            if step.type in RECEIVES:
                graph.receives[Connection(block.recv, gpu.id, block.chan)].append(node)


def _pieces(step: Step) -> tuple[Step, ...]:
    """The step chunk by chunk, if it moves messages."""
    if step.cnt == 1 or step.type not in SENDS | RECEIVES:
        return (step,)
    return tuple(step._replace(srcoff=step.srcoff + c, dstoff=step.dstoff + c, cnt=1) for c in range(step.cnt))


def in_order(graph: StepGraph) -> list[int] | None:
    """All nodes, each after those before it; None where that is a circle."""
    after: list[list[int]] = [[] for _ in graph.nodes]
    missing = [0] * len(graph.nodes)
    for node in range(len(graph.nodes)):
        for earlier in (*graph.before[node], *graph.full[node]):
            after[earlier].append(node)
            missing[node] += 1
    ready = [node for node, count in enumerate(missing) if count == 0]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for later in after[node]:
            missing[later] -= 1
            if missing[later] == 0:
                ready.append(later)
    return order if len(order) == len(graph.nodes) else None
