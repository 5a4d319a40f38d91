"""A failing program cut down to what makes it fail: few ranks, threadblocks and steps with the same finding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from latecomer.codegen.verify import examine
from latecomer.schedules.errors import InputError
from latecomer.schedules.program import RECEIVES, SENDS, Gpu, Program, Step, Threadblock

MAX_TRIES = 3000

_Key = tuple[int, int, int]
"""(gpu, threadblock, step)."""


def shrink(program: Program, code: str, target: str | None = None, tries: int = MAX_TRIES) -> Program:
    """The smallest program found that still has an error `code`: nothing more can be left out by itself.

    Leaves out ranks, then threadblocks, then messages (both ends, and what forwards them) and local steps.
    Where contributions are missing (W02), no more may be: the ranks stay, and what brings the others.
    Deterministic; at most `tries` programs are examined. Raises `InputError` for a result that is never written (W04):
    a program without any step has that fault too.
    """
    if code == "W04":
        raise InputError("a result that is never written (W04) cannot be cut down: no step is at fault, one is missing")
    missing = examine(program, target).facts.get("contributions_missing")
    best, left = program, tries
    progress = True
    while progress and left > 0:
        progress = False
        for smaller in _smaller(best, ranks=code != "W02"):
            left -= 1
            if left <= 0:
                break
            report = examine(smaller, target)
            if code == "W02" and report.facts.get("contributions_missing") != missing:
                continue
            if any(finding.code == code for finding in report.errors):
                best, progress = smaller, True
                break
    return best


def _smaller(program: Program, ranks: bool) -> Iterator[Program]:
    """Programs with one thing less, the big things first."""
    if ranks and len(program.gpus) > 2:
        for gpu in program.gpus:
            yield _without_rank(program, gpu.id)
    for gpu in program.gpus:
        if len(gpu.threadblocks) > 1:
            for tb in gpu.threadblocks:
                yield _without(program, _closure(program, ((gpu.id, tb.id, s) for s in range(len(tb.steps)))))
    half = [(gpu.id, tb.id, s) for gpu, tb, s, _ in program.steps()]
    for part in (half[len(half) // 2:], half[: len(half) // 2]):
        yield _without(program, _closure(program, part))
    for key in half:
        yield _without(program, _closure(program, [key]))


def _closure(program: Program, keys: Iterable[_Key]) -> set[_Key]:
    """The steps at both ends of every message that `keys` send or receive, and so on."""
    ends: dict[tuple[int, int, int], tuple[list[_Key], list[_Key]]] = {}
    connections: dict[_Key, list[tuple[tuple[int, int, int], int, int]]] = {}
    for gpu, tb, s, step in program.steps():
        key = (gpu.id, tb.id, s)
        out, into = (gpu.id, tb.send, tb.chan), (tb.recv, gpu.id, tb.chan)
        for side, kinds, connection in ((0, SENDS, out), (1, RECEIVES, into)):
            if step.type in kinds:
                both = ends.setdefault(connection, ([], []))
                connections.setdefault(key, []).append((connection, side, len(both[side])))
                both[side].append(key)
    found: set[_Key] = set()
    work = list(keys)
    while work:
        key = work.pop()
        if key in found:
            continue
        found.add(key)
        for connection, side, k in connections.get(key, ()):
            other = ends[connection][1 - side]
            if k < len(other):
                work.append(other[k])
    return found


def _without(program: Program, keys: set[_Key]) -> Program:
    """Without these steps; waits for them become waits for what still posts before them. Empty threadblocks go too."""
    gpus = []
    for gpu in program.gpus:
        kept = {tb.id: [s for s in range(len(tb.steps)) if (gpu.id, tb.id, s) not in keys] for tb in gpu.threadblocks}
        numbers = {tb_id: k for k, tb_id in enumerate(t for t, steps in kept.items() if steps)}
        blocks = []
        for tb in gpu.threadblocks:
            if not kept[tb.id]:
                continue
            steps = tuple(_rewired(tb.steps[s], kept, numbers) for s in kept[tb.id])
            kinds = {step.type for step in steps}
            blocks.append(replace(
                tb, id=numbers[tb.id], steps=steps, send=tb.send if kinds & SENDS else -1,
                recv=tb.recv if kinds & RECEIVES else -1,
                lines=tuple(tb.lines[s] for s in kept[tb.id]) if tb.lines else (),
            ))
        gpus.append(replace(gpu, threadblocks=tuple(blocks)))
    return replace(program, gpus=tuple(gpus))


def _rewired(step: Step, kept: dict[int, list[int]], numbers: dict[int, int]) -> Step:
    if step.depid < 0 or step.depid not in kept:
        return step
    before = [k for k, s in enumerate(kept[step.depid]) if s <= step.deps]
    if not before:
        return step._replace(depid=-1, deps=-1)
    return step._replace(depid=numbers[step.depid], deps=before[-1])


def _without_rank(program: Program, rank: int) -> Program:
    """One rank less, the others renumbered."""
    keys = [(gpu.id, tb.id, s) for gpu, tb, s, _ in program.steps() if rank in (gpu.id, tb.send, tb.recv)]
    smaller = _without(program, _closure(program, keys))

    def renumbered(r: int) -> int:
        return r - (r > rank)

    def block(tb: Threadblock) -> Threadblock:
        return replace(tb, send=renumbered(tb.send), recv=renumbered(tb.recv))

    def gpu(g: Gpu) -> Gpu:
        return replace(g, id=renumbered(g.id), threadblocks=tuple(block(tb) for tb in g.threadblocks))

    return replace(smaller, ranks=program.ranks - 1, gpus=tuple(gpu(g) for g in smaller.gpus if g.id != rank))
