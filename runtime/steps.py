"""Pass: one rank's operations → steps over a message of a given number of elements.

After: step i is operation i, with `deps` unchanged; places are ranges of elements; a step without elements does nothing
on either end. Ranges that are consecutive in memory are one part, and a message is one part wherever the operation
list lets it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latecomer.codegen.operations import Kind, Operation, OperationList, Place
from latecomer.schedules.errors import InputError


class Range(NamedTuple):
    """Elements `start` … `stop`-1 of a buffer."""

    buffer: str
    start: int
    stop: int


class Part(NamedTuple):
    """Ranges of the same length; as in an operation."""

    src: Range | None
    other: Range | None
    dst: Range | None


class Step(NamedTuple):
    """One operation over elements. `number` counts the messages of this sender and receiver, from 0."""

    kind: Kind
    peer: int
    number: int
    round: int
    parts: tuple[Part, ...]
    deps: tuple[int, ...]

    def __str__(self) -> str:
        what = {"send": f"send to rank {self.peer}", "receive": f"receive from rank {self.peer}"}
        return f"{what.get(self.kind, self.kind)} (round {self.round})"


@dataclass(frozen=True)
class Steps:
    """What a rank does for messages of one size.

    `scratch` is in elements. `untouched` are the ranges of the output that no step writes: they keep the input.
    """

    steps: tuple[Step, ...]
    scratch: int
    untouched: tuple[tuple[int, int], ...]

    @cached_property
    def graph(self) -> StepGraph:
        """Made once a list: a call that made it would start late (10 ms for 500 steps, on every rank)."""
        return StepGraph.of(self.steps)


@dataclass(frozen=True)
class StepGraph:
    """What an engine looks up of a list of steps. A *message* is a send or receive with elements."""

    missing: tuple[int, ...]
    """Step → how many it depends on."""
    after: tuple[tuple[int, ...], ...]
    """Step → those that depend on it."""
    message: tuple[bool, ...]
    local: tuple[int, ...]
    """The steps that are no message, ascending."""
    queues: dict[str, dict[int, tuple[int, ...]]]
    """send or receive → peer → messages in list order."""
    sends: dict[int, int]
    """Round → its sends that are messages."""

    @classmethod
    def of(cls, steps: Sequence[Step]) -> StepGraph:
        """O(steps + dependencies)."""
        after: list[list[int]] = [[] for _ in steps]
        queues: dict[str, dict[int, list[int]]] = {"send": {}, "receive": {}}
        sends: dict[int, int] = {}
        message = tuple(step.kind in queues and bool(step.parts) for step in steps)
        for i, step in enumerate(steps):
            for j in step.deps:
                after[j].append(i)
            if message[i]:
                queues[step.kind].setdefault(step.peer, []).append(i)
                if step.kind == "send":
                    sends[step.round] = sends.get(step.round, 0) + 1
        return cls(
            missing=tuple(len(step.deps) for step in steps),
            after=tuple(map(tuple, after)),
            message=message,
            local=tuple(i for i, is_message in enumerate(message) if not is_message),
            queues={kind: {peer: tuple(of) for peer, of in by.items()} for kind, by in queues.items()},
            sends=sends,
        )


def compile_steps(operations: OperationList, rank: int, elements: int, *, numbered: bool = False) -> Steps:
    """The steps of `rank` for `elements` elements. O(chunks moved by the rank).

    `numbered`: both ends of a message have one operation with its number, so that number counts, not the order.
    """
    chunks = operations.chunks
    bounds = chunks.bounds(elements)
    capacity = [-(-weight * elements // chunks.total) for weight in operations.scratch[rank]]
    layout = _Layout(bounds, [0, *accumulate(capacity)])
    sent: dict[tuple[str, int], int] = {}
    steps = []
    for op in operations.of(rank):
        parts = layout.parts(op)
        number = 0
        if op.kind in ("send", "receive") and numbered:
            number = op.message
        elif op.kind in ("send", "receive"):
            number = sent.get((op.kind, op.peer), 0)
            sent[op.kind, op.peer] = number + 1
        steps.append(Step(op.kind, op.peer, number, op.round, parts, op.deps))
    return Steps(tuple(steps), sum(capacity), _untouched(operations.of(rank), bounds))


class _Layout:
    """Where scratch cells lie, followed through the list: a block of cells is filled with chunks end to end."""

    def __init__(self, bounds: NDArray[np.int64], starts: Sequence[int]) -> None:
        self._bounds = bounds.tolist()
        self._starts = starts
        self._address: dict[int, int] = {}

    def parts(self, op: Operation) -> tuple[Part, ...]:
        bounds, first = self._bounds, op.chunk
        if op.dst is not None and op.dst.buffer == "scratch" and op.kind in ("receive", "copy"):
            start = self._starts[op.dst.offset]
            for i in range(op.length):
                self._address[op.dst.offset + i] = start + bounds[first + i] - bounds[first]
        parts: list[list[list[int] | None]] = []
        for i in range(op.length):
            count = bounds[first + i + 1] - bounds[first + i]
            if not count:
                continue
            at = [self._at(place, i) for place in (op.src, op.other, op.dst)]
            ranges = [None if start is None else [start, start + count] for start in at]
            if parts and all(
                b is None or a is None or a[1] == b[0] for a, b in zip(parts[-1], ranges, strict=True)
            ):
                for a, b in zip(parts[-1], ranges, strict=True):
                    if a is not None and b is not None:
                        a[1] = b[1]
            else:
                parts.append(ranges)
        if op.kind == "receive" and len(parts) > 1:
            raise InputError(f"a receive from rank {op.peer} goes to places that are not together in memory")
        places = (op.src, op.other, op.dst)
        return tuple(
            Part(*(None if r is None or p is None else Range(p.buffer, *r) for p, r in zip(places, part, strict=True)))
            for part in parts
        )

    def _at(self, place: Place | None, i: int) -> int | None:
        if place is None:
            return None
        cell: int = place.offset + i
        return self._address[cell] if place.buffer == "scratch" else int(self._bounds[cell])


def _untouched(operations: Sequence[Operation], bounds: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    written = np.zeros(len(bounds) - 1, dtype=bool)
    for op in operations:
        if op.dst is not None and op.dst.buffer == "output":
            written[op.dst.offset : op.dst.offset + op.length] = True
    ranges: list[tuple[int, int]] = []
    for chunk in np.flatnonzero(~written).tolist():
        start, stop = int(bounds[chunk]), int(bounds[chunk + 1])
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], stop)
        elif start < stop:
            ranges.append((start, stop))
    return tuple(ranges)


def elements_for(size_bytes: int, item_bytes: int) -> int:
    """How many elements make up a message of `size_bytes`, at least one."""
    return max(1, math.ceil(size_bytes / item_bytes))
