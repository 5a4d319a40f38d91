"""Schedule → `OperationList`: roles become ranks, slots become places, orders become dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from latecomer.codegen.dependencies import with_dependencies
from latecomer.codegen.operations import LOCAL, Operation, OperationList, Place
from latecomer.codegen.scratch import allocate
from latecomer.schedules.errors import InputError
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.transfers import ACCUMULATOR

REUSE_LAG = 2
"""Rounds until a scratch cell is used again, so that a receive rarely waits for an addition to end."""


def operations(schedule: Schedule, *, in_place: bool = False) -> OperationList:
    """The operations of every rank of `schedule`, with the least dependencies and little scratch.

    Before: a schedule that `check` accepts, without branches. After: an `OperationList` with the meaning
    its module states; transfers of empty chunks are left out, and rows of one (round, src, dst) are one
    message. Raises `InputError` for a schedule whose course is decided at an arrival. O(transfers ·
    dependencies per rank).
    """
    raw = raw_operations(schedule, in_place=in_place)
    pairs = zip(raw.operations, raw.scratch, strict=True)
    ranks = [allocate(ops, weights, REUSE_LAG) for ops, weights in pairs]
    return OperationList(
        collective=raw.collective, chunks=raw.chunks, stages=raw.stages, in_place=in_place,
        operations=tuple(with_dependencies(ops) for ops, _ in ranks),
        scratch=tuple(cells for _, cells in ranks),
    )


def raw_operations(schedule: Schedule, *, in_place: bool) -> OperationList:
    """As `operations`, but every value has scratch cells of its own and no `deps`: passes start here."""
    if schedule.branches:
        raise InputError("this schedule decides at the last arrival what follows, which only the executor can do; "
                         "for a file, synthesize with --algorithm all_pairs (in Python: schedule.resolve(rounds))")
    stages = [0] * schedule.ranks
    for role, rank in enumerate(schedule.binding):
        stages[rank] = schedule.stages[role]
    ranks = [_Rank(in_place, schedule.chunks.weights) for _ in range(schedule.ranks)]
    number = 0
    for messages in _rounds(schedule):
        number = _round(messages, ranks, schedule, number)
    return OperationList(
        collective=schedule.collective, chunks=schedule.chunks, stages=tuple(stages), in_place=in_place,
        operations=tuple(tuple(rank.operations) for rank in ranks),
        scratch=tuple(tuple(rank.cells) for rank in ranks),
    )


class _Row(NamedTuple):
    round: int
    src: int
    dst: int
    chunk: int
    reduce: int
    phase: int
    src_slot: int
    dst_slot: int


_Message = tuple[tuple[int, int], list[_Row]]


def _rounds(schedule: Schedule) -> Iterator[list[_Message]]:
    """The messages of each round in the order of their first rows; a message's rows sorted for long runs."""
    binding, weights = schedule.binding, schedule.chunks.weights
    rows = map(_Row._make, zip(*(column.tolist() for column in schedule.transfers.columns()), strict=True))
    for _, in_round in groupby(rows, key=lambda row: row.round):
        messages: dict[tuple[int, int], list[_Row]] = {}
        for row in in_round:
            if weights[row.chunk]:
                messages.setdefault((binding[row.src], binding[row.dst]), []).append(row)
        for of_message in messages.values():
            if len(of_message) > 1:
                of_message.sort(key=lambda r: (r.phase, r.reduce, r.src_slot, r.dst_slot, r.chunk))
        yield _sends_first(list(messages.items()))


def _sends_first(messages: list[_Message]) -> list[_Message]:
    """Where every rank sends and receives once at most: an order in which it sends first, as far as there
    is one.

    Then what it receives can go straight to its place, and a rank passes on what came a round ago before it
    takes the next. On a cycle of messages one rank, always the same, has to receive first.
    """
    by_sender = {pair[0]: (pair, rows) for pair, rows in messages}
    if len(by_sender) < len(messages) or len({dst for (_, dst), _ in messages}) < len(messages):
        return messages
    result: list[_Message] = []
    for sender in sorted(by_sender):
        chain = []
        at: int | None = sender
        while at in by_sender:
            chain.append(by_sender.pop(at))
            at = chain[-1][0][1]
        result += reversed(chain)
    return result


class _Received(NamedTuple):
    """A run of a message that lies in scratch and is still to be added or copied where it belongs."""

    run: list[_Row]
    cell: int
    source: int
    message: int
    stage: int


@dataclass
class _Rank:
    """Where a rank's slots are while its list is being made."""

    in_place: bool
    weights: tuple[int, ...]
    """Of the schedule's chunks."""
    operations: list[Operation] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)
    """The weight of each scratch cell handed out so far; none is handed out twice."""
    written: set[int] = field(default_factory=set)
    """Chunks whose accumulator has moved from the input to the output."""
    slots: dict[tuple[int, int], int] = field(default_factory=dict)
    """(chunk, relay slot) → scratch cell."""
    waiting: list[_Received] = field(default_factory=list)
    """What is applied at the end of the round, because the round still sends the old value."""
    touched: set[tuple[int, int]] = field(default_factory=set)
    """The (chunk, slot) that `waiting` will change."""

    def place(self, chunk: int, slot: int) -> Place | None:
        """Where (chunk, slot) can be read; None for a relay slot that holds nothing."""
        if slot == ACCUMULATOR:
            return Place("output" if self.in_place or chunk in self.written else "input", chunk)
        cell = self.slots.get((chunk, slot))
        return None if cell is None else Place("scratch", cell)

    def fresh(self, run: list[_Row]) -> int:
        """The first of new cells for the run's chunks."""
        self.cells += [self.weights[row.chunk] for row in run]
        return len(self.cells) - len(run)

    def receive(self, run: list[_Row], source: int, message: int, stage: int, later: bool) -> None:
        """Take a run and apply it, at the end of the round if `later`."""
        first = run[0]
        straight = not later and not first.reduce and first.dst_slot == ACCUMULATOR
        cell = -1 if straight else self.fresh(run)
        dst = Place("output", first.chunk) if straight else Place("scratch", cell)
        self.operations.append(Operation(
            "receive", source, message, first.round, first.phase, stage, first.chunk, len(run),
            None, None, dst))
        if straight:
            self.written.update(row.chunk for row in run)
            return
        received = _Received(run, cell, source, message, stage)
        if later:
            self.waiting.append(received)
            self.touched.update((row.chunk, row.dst_slot) for row in run)
        else:
            self.apply(received)

    def apply(self, received: _Received) -> None:
        """Add or copy a received run to its slots; a relay slot not added to just takes over the cells."""
        for cell, part in self._parts(received):
            first = part[0]
            held = self.place(first.chunk, first.dst_slot)
            arrived, output = Place("scratch", cell), Place("output", first.chunk)
            common = (received.message, first.round, first.phase, received.stage, first.chunk, len(part))
            to_accumulator = first.dst_slot == ACCUMULATOR
            if first.reduce and held is not None:
                dst = output if to_accumulator else held
                self.operations.append(
                    Operation("reduce", LOCAL, *common, held, arrived, dst, (), received.source))
            elif to_accumulator:
                self.operations.append(
                    Operation("copy", LOCAL, *common, arrived, None, output, (), received.source))
            else:
                self.slots |= {(row.chunk, row.dst_slot): cell + i for i, row in enumerate(part)}
            if to_accumulator:
                self.written.update(row.chunk for row in part)

    def _parts(self, received: _Received) -> Iterator[tuple[int, list[_Row]]]:
        """(first cell, rows) of the stretches whose slots are consecutive where they are now."""
        cell, part, before = received.cell, list[_Row](), object()
        for i, row in enumerate(received.run):
            held = self.place(row.chunk, row.dst_slot)
            key = held and (held.buffer, held.offset - row.chunk)
            if part and key != before:
                yield cell, part
                cell, part = received.cell + i, []
            part.append(row)
            before = key
        yield cell, part

    def end_round(self) -> None:
        """Apply what waited, in the order of the schedule's rows."""
        for received in self.waiting:
            self.apply(received)
        self.waiting.clear()
        self.touched.clear()


def _round(messages: list[_Message], ranks: list[_Rank], schedule: Schedule, number: int) -> int:
    """Append one round's operations; returns the next message number."""
    last_read = {(pair[0], row.chunk, row.src_slot): i
                 for i, (pair, rows) in enumerate(messages) for row in rows}
    for i, ((src, dst), rows) in enumerate(messages):
        sender, receiver = ranks[src], ranks[dst]
        for run in _runs(rows, sender):
            first = run[0]
            later = any(last_read.get((dst, row.chunk, row.dst_slot), -1) > i
                        or (row.chunk, row.dst_slot) in receiver.touched for row in run)
            stage = schedule.phases[first.phase].stage
            sender.operations.append(Operation(
                "send", dst, number, first.round, first.phase, stage, first.chunk, len(run),
                sender.place(first.chunk, first.src_slot), None, None))
            receiver.receive(run, src, number, stage, later)
        number += 1
    for _, dst in {pair for pair, _ in messages}:
        ranks[dst].end_round()
    return number


def _runs(rows: list[_Row], sender: _Rank) -> Iterator[list[_Row]]:
    """Stretches of rows that one operation can move: of one kind, consecutive chunks and places."""
    run: list[_Row] = []
    before: tuple[object, ...] = ()
    for row in rows:
        src = sender.place(row.chunk, row.src_slot)
        if src is None:
            raise InputError(f"round {row.round}: role {row.src} sends relay slot {row.src_slot} of chunk "
                             f"{row.chunk}, which holds nothing; run `latecomer check` on the schedule")
        key = (row.phase, row.reduce, row.src_slot, row.dst_slot, src.buffer, src.offset - row.chunk)
        if run and (key != before or row.chunk != run[-1].chunk + 1):
            yield run
            run = []
        run.append(row)
        before = key
    yield run
