"""What a program computes, in symbols: which ranks' contributions to which piece every chunk ends with."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from latecomer.codegen.graph import Connection, StepGraph
from latecomer.schedules.program import READS_SRC, RECEIVES, SENDS, WRITES_DST, BufferName, Program


class Sum(NamedTuple):
    """The sum of the contributions of the ranks in `ranks` (bits) to the piece `piece` of their input."""

    piece: int
    ranks: int


@dataclass(frozen=True)
class Bad:
    """A value that no result may hold: `code` of the finding, why, and the node where it arose."""

    code: str
    why: str
    node: int


Value = Sum | Bad | None
"""None: never written."""
Location = tuple[BufferName, int]


class Layout:
    """Where input and output of one rank lie, and which names mean the same memory.

    In place, AllGather's input is the rank's piece of its output, ReduceScatter's output its piece of the
    input, and for all others both are the same.
    """

    def __init__(self, program: Program, rank: int, in_place: bool) -> None:
        n, k = program.ranks, program.chunks
        share = k // max(1, n)
        self.collective, self.rank, self.in_place = program.collective, rank, in_place
        self.inputs = share if program.collective == "allgather" else k
        self.outputs = share if program.collective == "reduce_scatter" else k
        self.shift_i = rank * share if program.collective == "allgather" else 0
        self.shift_o = rank * share if program.collective == "reduce_scatter" else 0

    def at(self, buffer: BufferName, offset: int) -> Location:
        """One name for each piece of memory."""
        if not self.in_place or buffer == "s":
            return buffer, offset
        if self.collective == "reduce_scatter":
            return ("i", offset + self.shift_o) if buffer == "o" else (buffer, offset)
        return ("o", offset + self.shift_i) if buffer == "i" else (buffer, offset)


def initial(layout: Layout) -> dict[Location, Value]:
    """A rank's memory before the call."""
    return {layout.at("i", c): Sum(c, 1 << layout.rank) for c in range(layout.inputs)}


@dataclass(frozen=True)
class Outcome:
    """A rank's chunk that is not what it should be."""

    rank: int
    chunk: int
    code: str
    why: str
    node: int | None
    missing: int = 0
    """Contributions that it lacks and that nothing else is wrong with."""


class Trace:
    """What a run wrote, and what it should take for unknown.

    `unsure` holds (node, location) for reads, and (-1 - rank, location) for a rank's memory at the end, whose value
    depends on timing. `written` is filled: (node, location) → value.
    """

    def __init__(self, unsure: Collection[tuple[int, Location]] = ()) -> None:
        self.unsure = unsure
        self.written: dict[tuple[int, Location], Value] = {}


def interpret(
    program: Program, graph: StepGraph, order: Sequence[int], in_place: bool, trace: Trace | None = None
) -> list[Outcome]:
    """Run all steps in `order`; the wrong chunks of all ranks' results, none if the collective is computed.

    O(chunks moved). The order is one of those the program allows; where it has no hazards they all give the
    same.
    """
    trace = trace or Trace()
    layouts = {gpu.id: Layout(program, gpu.id, in_place) for gpu in program.gpus}
    memory: dict[int, dict[Location, Value]] = {
        rank: initial(layout) for rank, layout in layouts.items()
    }
    queues: dict[Connection, deque[list[Value]]] = {}
    blocks = {(gpu.id, tb.id): tb for gpu in program.gpus for tb in gpu.threadblocks}
    for node in order:
        rank, tb, _, step, _ = graph.nodes[node]
        if step.type == "nop":
            continue
        block, cells, at = blocks[rank, tb], memory[rank], layouts[rank].at
        values: list[Value] = []
        if step.type in RECEIVES:
            values = queues[Connection(block.recv, rank, block.chan)].popleft()
        if step.type in READS_SRC:
            own = _read(cells, [at(step.srcbuf, step.srcoff + c) for c in range(step.cnt)], node, trace)
            values = [_add(a, b, node) for a, b in zip(own, values, strict=True)] if values else own
        if step.type == "re":
            into = _read(cells, [at(step.dstbuf, step.dstoff + c) for c in range(step.cnt)], node, trace)
            values = [_add(a, b, node) for a, b in zip(into, values, strict=True)]
        if step.type in WRITES_DST:
            for c, value in enumerate(values):
                location = at(step.dstbuf, step.dstoff + c)
                cells[location] = trace.written[node, location] = value
        if step.type in SENDS:
            queues.setdefault(Connection(rank, block.send, block.chan), deque()).append(values)
    for which, location in trace.unsure:
        if which < 0:
            memory[-1 - which][location] = Bad(UNSURE, "depends on timing", which)
    return _judge(program, layouts, memory)


UNSURE = "H01"


def _read(cells: dict[Location, Value], locations: list[Location], node: int, trace: Trace) -> list[Value]:
    if not trace.unsure:
        return [cells.get(location) for location in locations]
    unknown = Bad(UNSURE, "depends on timing", node)
    return [unknown if (node, location) in trace.unsure else cells.get(location) for location in locations]


def _add(a: Value, b: Value, node: int) -> Value:
    if isinstance(a, Bad):
        return a
    if isinstance(b, Bad):
        return b
    if a is None or b is None:
        return Bad("W05", "adds what was never written", node)
    if a.piece != b.piece:
        return Bad("W01", f"adds piece {b.piece} to piece {a.piece}", node)
    if a.ranks & b.ranks:
        return Bad("W03", f"adds the contribution of rank {_lowest(a.ranks & b.ranks)} twice", node)
    return Sum(a.piece, a.ranks | b.ranks)


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _judge(
    program: Program, layouts: dict[int, Layout], memory: dict[int, dict[Location, Value]]
) -> list[Outcome]:
    if program.collective == "custom":
        return []
    if program.collective in ("broadcast", "reduce"):
        # The file does not name its root: any that fits will do; else report against the one that fits best.
        return min((_against(program, layouts, memory, root) for root in range(program.ranks)), key=len)
    return _against(program, layouts, memory, 0)


def _against(
    program: Program, layouts: dict[int, Layout], memory: dict[int, dict[Location, Value]], root: int
) -> list[Outcome]:
    everyone = (1 << program.ranks) - 1
    wrong = []
    for rank, layout in layouts.items():
        if program.collective == "reduce" and rank != root:
            continue
        for c in range(layout.outputs):
            share = program.chunks // max(1, program.ranks)
            expected = {
                "allreduce": Sum(c, everyone),
                "reduce": Sum(c, everyone),
                "broadcast": Sum(c, 1 << root),
                "reduce_scatter": Sum(rank * share + c, everyone),
                "allgather": Sum(c % max(1, share), 1 << c // max(1, share)),
                "alltoall": Sum(rank * share + c % max(1, share), 1 << c // max(1, share)),
            }[program.collective]
            value = memory[rank].get(layout.at("o", c))
            if value != expected:
                wrong.append(_outcome(rank, c, value, expected))
    return wrong


def _outcome(rank: int, chunk: int, value: Value, expected: Sum) -> Outcome:
    if value is None:
        return Outcome(rank, chunk, "W04", f"rank {rank} never writes chunk {chunk} of its result", None)
    if isinstance(value, Bad):
        return Outcome(rank, chunk, value.code, f"{value.why}; it ends in chunk {chunk} of rank {rank}", value.node)
    missing = expected.ranks & ~value.ranks
    if value.piece == expected.piece and missing:
        ranks = [str(r) for r in range(missing.bit_length()) if missing >> r & 1]
        whose = f"contribution of rank {ranks[0]}" if len(ranks) == 1 else f"contributions of ranks {', '.join(ranks)}"
        return Outcome(rank, chunk, "W02", f"chunk {chunk} of rank {rank} lacks the {whose}", None, len(ranks))
    return Outcome(rank, chunk, "W01", f"chunk {chunk} of rank {rank} holds piece {value.piece} of ranks "
                   f"{[r for r in range(value.ranks.bit_length()) if value.ranks >> r & 1]}", None)
