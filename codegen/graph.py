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
    first: dict[tuple[int, int], int] = field(default_factory=dict)
    """(gpu, threadblock) → its first node; the others follow."""
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


def posted(steps: Sequence[Step], wanted: int) -> int | None:
    """The first step from `wanted` (≥ 0) on that posts: it ends a wait for `wanted`. None: nobody does."""
    for s in range(wanted, len(steps)):
        if steps[s].hasdep == 1 and steps[s].type != "nop":
            return s
    return None


def step_graph(program: Program) -> StepGraph:
    """The graph of a program whose structure was found sound (ids, peers, matching, waits). O(steps)."""
    graph = StepGraph()
    for gpu in program.gpus:
        for block in gpu.threadblocks:
            _add_block(graph, gpu, block)
    for gpu in program.gpus:
        by_id = {block.id: block for block in gpu.threadblocks}
        for block in gpu.threadblocks:
            start = graph.first[gpu.id, block.id]
            for s, step in enumerate(block.steps):
                if step.depid >= 0 and step.deps >= 0 and step.depid != block.id:
                    ends = posted(by_id[step.depid].steps, step.deps)
                    if ends is not None:
                        earlier = graph.first[gpu.id, step.depid] + ends
                        graph.before[start + s].append(earlier)
                        graph.local[start + s].append(earlier)
    capacity = CAPACITY[program.protocol]
    for connection, receives in graph.receives.items():
        sends = graph.sends[connection]
        for k, receive in enumerate(receives):
            graph.before[receive].append(sends[k])
            if k + capacity < len(sends):
                graph.full[sends[k + capacity]].append(receive)
    return graph


def _add_block(graph: StepGraph, gpu: Gpu, block: Threadblock) -> None:
    graph.first[gpu.id, block.id] = len(graph.nodes)
    for s, step in enumerate(block.steps):
        node = len(graph.nodes)
        line = block.lines[s] if block.lines else 0
        graph.nodes.append(Node(gpu.id, block.id, s, step, line))
        before = [node - 1] if s else []
        graph.before.append(before)
        graph.local.append(list(before))
        graph.full.append([])
        if step.type in SENDS:
            graph.sends[Connection(gpu.id, block.send, block.chan)].append(node)
        if step.type in RECEIVES:
            graph.receives[Connection(block.recv, gpu.id, block.chan)].append(node)


def in_order(graph: StepGraph, extra: tuple[int, int] | None = None) -> list[int] | None:
    """All nodes, each after those before it (and `extra[0]` before `extra[1]`); None where that is a circle."""
    after: list[list[int]] = [[] for _ in graph.nodes]
    missing = [0] * len(graph.nodes)
    for node in range(len(graph.nodes)):
        for earlier in (*graph.before[node], *graph.full[node]):
            after[earlier].append(node)
            missing[node] += 1
    if extra is not None:
        after[extra[0]].append(extra[1])
        missing[extra[1]] += 1
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
