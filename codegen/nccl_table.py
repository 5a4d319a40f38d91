"""Pass: `Schedule` → `Table`, what each rank of a CUDA/NCCL program does, round by round, as a few numbers
a step.

A round of the table is one NCCL group followed by kernels on the same stream. A stream runs in order, so a
table needs no dependencies, and scratch is free again as soon as a round's kernels are queued.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final, Literal, NamedTuple

from latecomer.codegen.dependencies import conflicts
from latecomer.codegen.from_schedule import raw_operations
from latecomer.codegen.operations import LOCAL, Operation, Place
from latecomer.schedules.errors import InputError
from latecomer.schedules.schedule import Schedule

INPUT: Final = -2
OUTPUT: Final = -1
MAX_TOTAL: Final = 2**31 - 1
"""Greatest sum of chunk weights: the program computes chunk boundaries exactly in 64 bits below it."""


class Spot(NamedTuple):
    """A buffer: `INPUT`, `OUTPUT` or a scratch slot from 0 on; a slot is read from its `skip`-th chunk on."""

    buffer: int
    skip: int = 0


class Step(NamedTuple):
    """`send` from `src`, `receive` into `dst`, `reduce` dst = src (+) other, or `copy` dst = src, of
    `length` chunks.

    Chunk numbers are the schedule's. In `INPUT` and `OUTPUT` a chunk lies where the message has it.
    """

    kind: Literal["send", "receive", "reduce", "copy"]
    peer: int
    chunk: int
    length: int
    src: Spot | None
    other: Spot | None
    dst: Spot | None


class Round(NamedTuple):
    """`moves` are one NCCL group; `local` are kernels behind it. `number` is the schedule's round."""

    number: int
    stage: int
    moves: tuple[Step, ...]
    local: tuple[Step, ...]


@dataclass(frozen=True)
class RankTable:
    """What one rank does. Scratch is `slots` slots that hold chunks of `slot_weight` in all (unit: chunk weights)."""

    rounds: tuple[Round, ...]
    slots: int
    slot_weight: int
    stage: int


@dataclass(frozen=True)
class Table:
    """The whole program. `late` is the rank of the last arrival, None where nobody is late."""

    weights: tuple[int, ...]
    ranks: tuple[RankTable, ...]
    late: int | None


def lower(schedule: Schedule) -> Table:
    """The table of `schedule`.

    Before: a schedule that `check` accepts. After: every rank runs its transfers in the order of (round,
    stage) of the schedule, the early ranks' pre-work before anything that involves a later stage. Nothing
    can get stuck: the groups of one (round, stage) hold the same messages on all ranks, and every rank runs
    them in the same order.

    Raises `InputError` for a schedule that is not an AllReduce or decides its course at an arrival, and for
    chunk weights beyond `MAX_TOTAL`. O(transfers · log).
    """
    if schedule.collective != "allreduce":
        raise InputError(f"a CUDA/NCCL program is an allreduce; this schedule is a {schedule.collective}")
    if schedule.chunks.total > MAX_TOTAL:
        raise InputError(
            f"the chunks' weights add up to {schedule.chunks.total}; a CUDA/NCCL program takes up to {MAX_TOTAL}: "
            "ask for fewer chunks"
        )
    raw = raw_operations(schedule, in_place=False)
    cuts = _cuts(raw.operations)
    late = [rank for rank, stage in enumerate(raw.stages) if 0 < stage == max(raw.stages)]
    return Table(
        weights=schedule.chunks.weights,
        ranks=tuple(
            _Rank(operations, schedule.chunks.weights, cuts).table(raw.stages[rank])
            for rank, operations in enumerate(raw.operations)
        ),
        late=late[0] if late else None,
    )


def _blocks(operations: Sequence[Operation]) -> dict[int, tuple[int, int]]:
    """Scratch cell → (first cell of the receive that fills it, chunk in that first cell)."""
    return {
        op.dst.offset + i: (op.dst.offset, op.chunk)
        for op in operations
        if op.kind == "receive" and op.dst is not None and op.dst.buffer == "scratch"
        for i in range(op.length)
    }


Cuts = dict[tuple[int, int], list[int]]
"""(message, first chunk of a run) → lengths of the pieces both ends move it in, where that is more than one."""


def _cuts(ranks: Sequence[Sequence[Operation]]) -> Cuts:
    """A send out of scratch that was filled by several receives is one piece per such block, on both ends."""
    cuts: Cuts = {}
    for operations in ranks:
        blocks = _blocks(operations)
        for op in operations:
            lengths = _pieces(op, blocks)
            if op.kind == "send" and len(lengths) > 1:
                cuts[op.message, op.chunk] = lengths
    return cuts


def _pieces(op: Operation, blocks: dict[int, tuple[int, int]]) -> list[int]:
    """Lengths of the longest stretches of `op` in which each of its scratch places lies in one block."""
    places = [place for place in (op.src, op.other, op.dst) if place is not None and place.buffer == "scratch"]
    keys = ([blocks[place.offset + i][0] for place in places] for i in range(op.length))
    return [len(list(group)) for _, group in groupby(keys)]


class _Rank:
    """One rank's operations on their way to rounds."""

    def __init__(self, operations: Sequence[Operation], weights: Sequence[int], cuts: Cuts) -> None:
        self.weights = weights
        self.blocks = _blocks(operations)
        self.operations = list(operations)
        self.cuts = cuts
        self.spare = 1 + max(self.blocks, default=-1)

    def table(self, stage: int) -> RankTable:
        rounds = list(self._rounds())
        names, slots = self._slots(rounds)
        sizes = {
            first: sum(self.weights[chunk] for chunk in range(op.chunk, op.chunk + op.length))
            for _, moves, _ in rounds
            for op in moves
            if op.kind == "receive" and (first := _scratch(op.dst)) is not None
        }
        done = tuple(
            Round(key[0], key[1], self._steps(moves, names), _by_chunk(self._steps(local, names)))
            for key, moves, local in rounds
        )
        return RankTable(done, slots, max(sizes.values(), default=0), stage)

    def _rounds(self) -> Iterator[tuple[tuple[int, int], list[Operation], list[Operation]]]:
        """((round, stage), moves, kernels), in an order that keeps every dependency although moves of a
        group overlap.

        A receive that would overwrite what its own group sends goes to scratch first; any other move that
        depends on its group opens another group of the same (round, stage).
        """
        waits = conflicts([(tuple(op.reads()), op.dst, op.length) for op in self.operations])
        key = [(op.round, op.stage) for op in self.operations]
        order = sorted(range(len(self.operations)), key=key.__getitem__)
        for where, indices in groupby(order, key=key.__getitem__):
            moves: list[Operation] = []
            local: list[Operation] = []
            inside: dict[int, str] = {}
            for i in indices:
                op = self.operations[i]
                kinds = {inside[j] for j in waits[i] if j in inside}
                if op.kind == "receive" and kinds == {"send"}:
                    op, copy = self._aside(op)
                    local.append(copy)
                elif op.kind in ("send", "receive") and kinds:
                    yield where, moves, local
                    moves, local, inside = [], [], {}
                (moves if op.kind in ("send", "receive") else local).append(op)
                inside[i] = op.kind
            yield where, moves, local

    def _aside(self, op: Operation) -> tuple[Operation, Operation]:
        """The receive into scratch cells of its own, and the copy to where it belongs."""
        cell = self.spare
        self.spare += op.length
        self.blocks |= {cell + i: (cell, op.chunk) for i in range(op.length)}
        place = Place("scratch", cell)
        copy = op._replace(kind="copy", peer=LOCAL, src=place)
        return op._replace(dst=place), copy

    def _slots(
        self, rounds: Sequence[tuple[tuple[int, int], list[Operation], list[Operation]]]
    ) -> tuple[dict[int, int], int]:
        """(block → slot, number of slots): a slot is used again from the round after its last use on."""
        last: dict[int, int] = {}
        for i, (_, moves, local) in enumerate(rounds):
            for op in (*moves, *local):
                for place in (op.src, op.other, op.dst):
                    if place is not None and place.buffer == "scratch":
                        last |= {self.blocks[place.offset + k][0]: i for k in range(op.length)}
        ends: dict[int, list[int]] = {}
        for block, i in last.items():
            ends.setdefault(i, []).append(block)
        free: list[int] = []
        names: dict[int, int] = {}
        count = 0
        for i, (_, moves, _) in enumerate(rounds):
            for op in moves:
                if op.kind == "receive" and (first := _scratch(op.dst)) is not None:
                    if free:
                        names[first] = heapq.heappop(free)
                    else:
                        names[first], count = count, count + 1
            for block in ends.get(i, ()):
                heapq.heappush(free, names[block])
        return names, count

    def _steps(self, operations: Sequence[Operation], names: dict[int, int]) -> tuple[Step, ...]:
        return tuple(step for op in operations for step in self._cut(op, names))

    def _cut(self, op: Operation, names: dict[int, int]) -> Iterator[Step]:
        cut = self.cuts.get((op.message, op.chunk)) if op.kind in ("send", "receive") else None
        low = 0
        for length in cut or _pieces(op, self.blocks):

            def at(place: Place | None, low: int = low) -> Spot | None:
                if place is None:
                    return None
                if place.buffer != "scratch":
                    return Spot(INPUT if place.buffer == "input" else OUTPUT)
                block, first = self.blocks[place.offset + low]
                return Spot(names[block], op.chunk + low - first)

            yield Step(op.kind, op.peer, op.chunk + low, length, at(op.src), at(op.other), at(op.dst))
            low += length


def _by_chunk(local: tuple[Step, ...]) -> tuple[Step, ...]:
    """Kernels in the order of their chunks, those on the same chunks in the order they had: a program then adds
    several operands in one kernel. Left alone where ranges of chunks overlap without being the same."""
    ranges = sorted({(step.chunk, step.length) for step in local})
    if any(low + length > following for (low, length), (following, _) in pairwise(ranges)):
        return local
    return tuple(sorted(local, key=lambda step: step.chunk))


def _scratch(place: Place | None) -> int | None:
    return place.offset if place is not None and place.buffer == "scratch" else None
