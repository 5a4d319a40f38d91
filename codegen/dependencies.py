"""Pass: what an operation must wait for, and no more than that."""

from __future__ import annotations

from collections.abc import Sequence

from latecomer.codegen.operations import Operation, Place

Access = tuple[Sequence[Place], Place | None, int]
"""(places read, place written, length of each) of one operation."""


def conflicts(accesses: Sequence[Access]) -> list[list[int]]:
    """For each operation of one rank, earlier ones it must come after, latest first; may hold implied ones.

    Read after write, write after read, write after write, chunk by chunk; chunk c of `input` and of `output`
    count as the same memory, so the result holds in place and out of place. O(chunks touched).
    """
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    result = []
    for i, (read, written, length) in enumerate(accesses):
        waits: set[int] = set()
        reads = [key for place in read for key in _keys(place, length)]
        writes = _keys(written, length) if written is not None else ()
        for key in reads:
            if key in writer:
                waits.add(writer[key])
        for key in writes:
            waits.update(readers.get(key, ()))
            if key in writer:
                waits.add(writer[key])
        for key in reads:
            readers.setdefault(key, []).append(i)
        for key in writes:
            writer[key] = i
            readers[key] = []
        waits.discard(i)
        result.append(sorted(waits, reverse=True))
    return result


def _keys(place: Place, length: int) -> range:
    """A number for each chunk: from 0 on in the message, from -1 down in scratch."""
    if place.buffer == "scratch":
        return range(~place.offset, ~place.offset - length, -1)
    return range(place.offset, place.offset + length)


def least(
    waits: Sequence[Sequence[int]], given: Sequence[Sequence[int]] | None = None
) -> list[tuple[int, ...]]:
    """`waits` without what follows from the rest (and from `given`, an order that holds anyway).

    `waits[i]` and `given[i]` are positions below i; `waits[i]` is sorted latest first. Sets of ancestors are
    bits of an integer: O(edges · operations / 64).
    """
    ancestors: list[int] = []
    result = []
    for i, candidates in enumerate(waits):
        known = 0
        for j in given[i] if given is not None else ():
            known |= ancestors[j] | 1 << j
        kept = []
        for j in candidates:
            if not known >> j & 1:
                kept.append(j)
                known |= ancestors[j] | 1 << j
        ancestors.append(known)
        result.append(tuple(reversed(kept)))
    return result


def with_dependencies(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """One rank's operations with the least `deps` that exclude every hazard. Before: `deps` are empty."""
    deps = least(conflicts([(tuple(op.reads()), op.dst, op.length) for op in operations]))
    return tuple(op._replace(deps=d) if d else op for op, d in zip(operations, deps, strict=True))
