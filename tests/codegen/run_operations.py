"""Runs an operation list as its text defines it: any order the dependencies allow, sends meeting their receives."""

from __future__ import annotations

import random

from latecomer.codegen.operations import Operation, OperationList, Place

Memory = dict[Place, list[int]]


def run_operations(ops: OperationList, seed: int) -> list[dict[int, list[int]]]:
    """Per rank and chunk of the output, the contributions in the order of addition; the timing is random."""
    rng = random.Random(seed)
    memory: list[Memory] = [
        {Place("output" if ops.in_place else "input", c): [rank] for c in range(len(ops.chunks))}
        for rank in range(ops.ranks)
    ]
    done: list[set[int]] = [set() for _ in range(ops.ranks)]
    while any(len(done[r]) < len(ops.of(r)) for r in range(ops.ranks)):
        choices = [(r, i) for r in range(ops.ranks) for i in _ready(ops.of(r), done[r])]
        rng.shuffle(choices)
        assert any(_perform(ops, memory, done, choices, rank, i) for rank, i in choices), "stuck"
    kept = [c for c in range(len(ops.chunks)) if ops.chunks.weights[c]]
    return [{c: memory[r][Place("output", c)] for c in kept} for r in range(ops.ranks)]


def _ready(operations: tuple[Operation, ...], done: set[int]) -> list[int]:
    """Those that may start: dependencies met, and the first of what is still open with its peer in its direction."""
    busy: set[tuple[str, int]] = set()
    result = []
    for i, op in enumerate(operations):
        if i in done:
            continue
        key = (op.kind, op.peer)
        wire = op.kind in ("send", "receive")
        if all(d in done for d in op.deps) and not (wire and key in busy):
            result.append(i)
        if wire:
            busy.add(key)
    return result


def _perform(
    ops: OperationList, memory: list[Memory], done: list[set[int]], choices: list[tuple[int, int]], rank: int, i: int
) -> bool:
    """Do operation `i` of `rank`, a send together with its receive; False where that cannot be yet."""
    op = ops.of(rank)[i]
    if op.kind == "receive":
        return False
    if op.kind == "send":
        meets = [j for r, j in choices if r == op.peer and ops.of(r)[j].kind == "receive"
                 and ops.of(r)[j].peer == rank]
        if not meets:
            return False
        there = ops.of(op.peer)[meets[0]]
        assert (there.message, there.length, there.chunk) == (op.message, op.length, op.chunk)
        _write(memory[op.peer], there.dst, _read(memory[rank], op.src, op.length))
        done[op.peer].add(meets[0])
    else:
        values = _read(memory[rank], op.src, op.length)
        if op.other is not None:
            added = _read(memory[rank], op.other, op.length)
            values = [a + b for a, b in zip(values, added, strict=True)]
        _write(memory[rank], op.dst, values)
    done[rank].add(i)
    return True


def _read(memory: Memory, place: Place | None, length: int) -> list[list[int]]:
    assert place is not None
    return [memory[Place(place.buffer, place.offset + c)] for c in range(length)]


def _write(memory: Memory, place: Place | None, values: list[list[int]]) -> None:
    assert place is not None
    for c, value in enumerate(values):
        memory[Place(place.buffer, place.offset + c)] = value
