"""Schedule → operations → `Program`: threadblocks, channels, scratch and dependencies within a target's limits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latecomer.codegen.blocks import Block, forwards, fuse, place_in_blocks
from latecomer.codegen.connections import connect
from latecomer.codegen.deadlock import stuck
from latecomer.codegen.dependencies import conflicts, least
from latecomer.codegen.drafts import Draft, Units, draft_rank
from latecomer.codegen.from_schedule import REUSE_LAG, raw_operations
from latecomer.codegen.operations import Buffer
from latecomer.codegen.scratch import Use, assign_cells, moved
from latecomer.codegen.targets import FUSED, MAX_CNT, MAX_FUSED_REDUCES, MAX_NAME, NODE_BUDGET, Target, target
from latecomer.schedules.chunks import Chunks
from latecomer.schedules.collector import paused
from latecomer.schedules.errors import InputError, LimitExceeded
from latecomer.schedules.program import BufferName, Gpu, Program, Protocol, Step, Threadblock
from latecomer.schedules.schedule import Schedule

LARGEST_BYTES = 2**30
"""Upper end of the size range where the caller names none: one runtime allocates scratch for it at start-up."""

_SHORT: dict[Buffer, BufferName] = {"input": "i", "output": "o", "scratch": "s"}


@dataclass(frozen=True)
class Options:
    """How a program is to be called; sizes in bytes, both ends of the range included."""

    in_place: bool = True
    out_of_place: bool = False
    protocol: Protocol = "Simple"
    min_bytes: int = 0
    max_bytes: int = LARGEST_BYTES


@paused()
def lower(schedule: Schedule, to: str | Target = "msccl-executor", options: Options | None = None) -> Program:
    """The program that does what `schedule` does on the target called `to`.

    Before: an AllReduce that `check` accepts, without branches. After: a program within the target's limits
    that is free of hazards and safe even if every send waited for its receive; no step of a rank that is
    there from the start waits for a later one before the schedule says so. Raises `InputError`, and
    `LimitExceeded` naming the limit. O(transfers · dependencies per rank).
    """
    goal = target(to) if isinstance(to, str) else to
    options = options or Options()
    _possible(schedule, goal, options)
    try:
        return _lower(schedule, goal, options)
    except LimitExceeded as error:
        raise LimitExceeded(f"{error}. {_largest(schedule, goal, options)}", error.limit) from None


def _largest(schedule: Schedule, goal: Target, options: Options) -> str:
    """How many of the schedule's chunks fit: found by halving, each chunk being a schedule of its own."""
    fits, too_many = 0, len(schedule.chunks)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        weights = (*schedule.chunks.weights[:middle], *(0,) * (len(schedule.chunks) - middle))
        chunks = Chunks(weights=weights, owners=schedule.chunks.owners)
        part = schedule.model_copy(update={"chunks": chunks})
        try:
            _lower(part, goal, options)
            fits = middle
        except (LimitExceeded, ValueError):
            too_many = middle
    if fits:
        return f"The largest number of chunks that fits {goal.name} is {fits} of these {len(schedule.chunks)}"
    return f"Not even one chunk fits {goal.name}: {schedule.ranks} ranks are too many for this algorithm"


def _lower(schedule: Schedule, goal: Target, options: Options) -> Program:
    raw = raw_operations(schedule, in_place=not options.out_of_place)
    units = Units(schedule.chunks.weights)
    ranks: list[list[Draft]] = []
    scratch = []
    for ops, cells in zip(raw.operations, raw.scratch, strict=True):
        drafts, used = draft_rank(ops, cells, units, goal)
        drafts, size = _with_less_scratch(drafts, used)
        ranks.append(drafts)
        scratch.append(size)
    # A forwarding step of several chunks takes and sends one by one where messages are large. That is safe unless a
    # peer waits to send all before it receives any: then forward single chunks only, which always is.
    program = _program(schedule, options, goal, _gpus(ranks, scratch, units.total, goal, MAX_CNT), units.total)
    if any(step.cnt > 1 and step.type in FUSED for *_, step in program.steps()) and stuck(program, capacity=0):
        program = _program(schedule, options, goal, _gpus(ranks, scratch, units.total, goal, 1), units.total)
    return program


def _program(
    schedule: Schedule, options: Options, goal: Target, gpus: tuple[Gpu, ...], chunks: int
) -> Program:
    return Program(
        name=_name(schedule), collective="allreduce", ranks=schedule.ranks,
        channels=1 + max(block.chan for gpu in gpus for block in gpu.threadblocks), chunks=chunks,
        protocol=options.protocol, in_place=options.in_place, out_of_place=options.out_of_place,
        min_bytes=options.min_bytes, max_bytes=options.max_bytes + goal.max_bytes_exclusive, gpus=gpus,
    )


def _possible(schedule: Schedule, goal: Target, options: Options) -> None:
    if schedule.collective != "allreduce":
        raise InputError(f"only AllReduce schedules become programs so far; this one is a {schedule.collective}")
    if not (options.in_place or options.out_of_place):
        raise InputError("a program must serve in-place calls, out-of-place calls, or both")
    if options.in_place and options.out_of_place and not goal.both_placements:
        raise InputError(f"one file cannot serve in-place and out-of-place calls of {goal.name}; export two files")
    if not 0 <= options.min_bytes <= options.max_bytes or options.max_bytes == 0:
        raise InputError(f"the size range {options.min_bytes} … {options.max_bytes} bytes is empty; "
                         "give --min-bytes below --max-bytes, and not 0 as the greatest size")


def _name(schedule: Schedule) -> str:
    text = f"{schedule.provenance.algorithm}_n{schedule.ranks}_k{len(schedule.chunks)}"
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:MAX_NAME]


def _with_less_scratch(drafts: list[Draft], used: int) -> tuple[list[Draft], int]:
    """Scratch is reused at once for messages from one peer (mostly one threadblock: no waiting), later for all."""
    uses = []
    for draft in drafts:
        touched = tuple((p.offset, draft.length) for p in (draft.src, draft.dst)
                        if p is not None and p.buffer == "scratch")
        if draft.recv is not None and draft.src is None and touched:
            uses.append(Use(draft.round, draft.recv.peer, touched[0], ()))
        else:
            uses.append(Use(draft.round, -1, None, touched))
    cells, sizes = assign_cells(uses, (1,) * used, lag=0, shared_lag=REUSE_LAG)
    return [
        draft._replace(src=moved(draft.src, cells), dst=moved(draft.dst, cells)) if use.fills or use.touches else draft
        for draft, use in zip(drafts, uses, strict=True)
    ], len(sizes)


def _gpus(
    ranks: Sequence[Sequence[Draft]], scratch: Sequence[int], chunks: int, goal: Target, forward: int
) -> tuple[Gpu, ...]:
    waits = [conflicts([draft.access() for draft in drafts]) for drafts in ranks]
    # A dependency too many is a nop; that some will follow from the order in a threadblock only makes it fewer.
    costs = [[max(1, len(deps)) for deps in least(w)] for w in waits]
    parts = connect(ranks, costs, goal)
    by_rank: list[list[int]] = [[] for _ in ranks]
    for k, part in enumerate(parts):
        by_rank[part.sender].append(k)
        by_rank[part.receiver].append(k)
    gpus = []
    for rank, of_rank in enumerate(ranks):
        drafts = list(of_rank)
        onward = forwards(drafts, waits[rank], forward) if goal.fused else {}
        mine = [parts[k] for k in by_rank[rank]]
        blocks = place_in_blocks(drafts, rank, mine, costs[rank], onward, goal)
        joined = fuse(drafts, blocks, onward)
        threadblocks = _threadblocks(drafts, blocks, waits[rank], joined, goal, rank)
        gpus.append(Gpu(rank, chunks, chunks, scratch[rank], threadblocks))
        _check_budget(gpus[-1], len(ranks), goal)
    return tuple(gpus)


def _threadblocks(
    drafts: Sequence[Draft], blocks: Sequence[Block], waits: Sequence[Sequence[int]], joined: Mapping[int, int],
    goal: Target, rank: int,
) -> tuple[Threadblock, ...]:
    """Number the steps, nops included, and turn dependencies between drafts into those between steps.

    What waited for a send that is `joined` to a receive now waits for both, as one step.
    """
    order = sorted(position for block in blocks for position in block.drafts)
    index = {position: i for i, position in enumerate(order)}
    index |= {gone: index[position] for gone, position in joined.items()}
    home: dict[int, int] = {}
    given: list[tuple[int, ...]] = [()] * len(order)
    for b, block in enumerate(blocks):
        before: int | None = None
        for position in block.drafts:
            i = index[position]
            home[i] = b
            given[i] = () if before is None else (before,)
            before = i
    # What precedes in the threadblock is known before any wait is counted.
    deps = least([sorted({index[w] for w in waits[p]}, reverse=True) for p in order], given)
    number: dict[int, int] = {}
    for block in blocks:
        s = 0
        for position in block.drafts:
            s += max(1, len(deps[index[position]]))
            number[index[position]] = s - 1
        if s > goal.steps:
            raise LimitExceeded(f"gpu {rank}: a threadblock needs {s} steps; {goal.name} has {goal.steps}",
                                limit="steps")
    awaited = {d for of_step in deps for d in of_step}
    if awaited and max(home[d] for d in awaited) > goal.depid:
        raise LimitExceeded(f"gpu {rank}: a step waits for threadblock {max(home[d] for d in awaited)}; {goal.name} "
                            f"can wait for threadblocks 0 … {goal.depid}", limit="depid")
    result = []
    for b, block in enumerate(blocks):
        steps: list[Step] = []
        for position in block.drafts:
            i = index[position]
            targets = [(home[d], number[d]) for d in deps[i]]
            steps += [Step("nop", depid=tb, deps=s) for tb, s in targets[:-1]]
            steps.append(_step(drafts[position], targets[-1] if targets else (-1, -1), i in awaited))
        result.append(Threadblock(b, block.send, block.recv, block.channel, tuple(_unmerged(steps))))
    return tuple(result)


def _step(draft: Draft, wait: tuple[int, int], awaited: bool) -> Step:
    # Every step names two places; where it uses one, the other repeats it, which every parser's bounds check passes.
    src = draft.src or draft.dst
    dst = draft.dst or draft.src
    assert src is not None
    assert dst is not None
    return Step(draft.type, _SHORT[src.buffer], src.offset, _SHORT[dst.buffer], dst.offset, draft.length,
                *wait, int(awaited))


def _unmerged(steps: list[Step]) -> list[Step]:
    """Keep parsers from merging additions of different lengths, or too many: a posted step ends a chain."""
    run = 0
    for k in range(1, len(steps)):
        a, b = steps[k - 1], steps[k]
        joins = (a.type == b.type == "re" and b.depid < 0 and not a.hasdep
                 and (a.dstbuf, a.dstoff, a.srcbuf) == (b.dstbuf, b.dstoff, b.srcbuf))
        run = run + 1 if joins else 0
        if joins and (a.cnt != b.cnt or run >= MAX_FUSED_REDUCES - 1):
            steps[k - 1] = a._replace(hasdep=1)
            run = 0
    return steps


def _check_budget(gpu: Gpu, ranks: int, goal: Target) -> None:
    nodes = 1 + ranks + sum(1 + len(block.steps) for block in gpu.threadblocks)
    if nodes > NODE_BUDGET:
        raise LimitExceeded(f"gpu {gpu.id}: the file has {nodes} elements for this rank; parsers of {goal.name} take "
                            f"{NODE_BUDGET}", limit="nodes")
