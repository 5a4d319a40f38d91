"""Faults of a program that need no run: ids, peers, channels, buffers, waits, and a target's limits."""

from __future__ import annotations

from collections import Counter

from latecomer.codegen.findings import Findings
from latecomer.codegen.graph import posted
from latecomer.codegen.matching import check_connections
from latecomer.codegen.serves import placements
from latecomer.codegen.targets import (
    CONNECTIONS_PER_CHANNEL,
    FUSED,
    MAX_CNT,
    MAX_FUSED_REDUCES,
    NODE_BUDGET,
    TARGETS,
    Target,
)
from latecomer.schedules.program import READS_SRC, RECEIVES, SENDS, WRITES_DST, Gpu, Program, Step, Threadblock

_SHARED = ("allgather", "reduce_scatter", "alltoall")
"""Collectives whose buffer has a piece per rank."""

_LOOSEST = Target("any runtime", 1024, 256, 128, 127, TARGETS["msccl"].types, False, None, True, False)
"""Limits that no runtime goes beyond: what is an error where no target is named."""


def check_structure(program: Program, findings: Findings, goal: Target | None) -> None:
    """Add what is wrong with `program` before it runs, for `goal` (None: what no runtime takes). O(steps)."""
    limits = goal or _LOOSEST
    _root(program, findings, limits)
    placed = placements(program, goal)
    ids = Counter(gpu.id for gpu in program.gpus)
    for rank in range(max(0, min(program.ranks, 4096))):
        if rank not in ids:
            findings.add("G01", f"there is no <gpu> for rank {rank}", program.line, rank)
    seen: set[int] = set()
    for gpu in program.gpus:
        if gpu.id in seen:
            findings.add("G02", f"there are two <gpu id=\"{gpu.id}\">", gpu.line, gpu.id)
        seen.add(gpu.id)
        if not 0 <= gpu.id < program.ranks:
            findings.add("G03", f"<gpu id=\"{gpu.id}\"> with ngpus=\"{program.ranks}\"", gpu.line, gpu.id)
        _gpu(program, gpu, findings, limits, False in placed)
    _fused(program, findings)
    check_connections(program, findings)


def _fused(program: Program, findings: Findings) -> None:
    """One finding for all of them: a file has them everywhere or not at all."""
    types = sorted({step.type for *_, step in program.steps() if step.type in FUSED})
    fused = [(tb.lines[k] if tb.lines else 0, gpu.id, tb.id, k)
             for gpu, tb, k, step in program.steps() if step.type in FUSED]
    if fused:
        others = f" and {len(fused) - 1} others are" if len(fused) > 1 else " is"
        findings.add("S11", f"this step{others} of a type ({', '.join(types)}) for which RCCL's builds mostly have no "
                     "kernels; export the schedule with --to rccl", *fused[0])


def _root(program: Program, findings: Findings, limits: Target) -> None:
    line = program.line
    if not 1 <= program.channels <= limits.channels:
        findings.add("A15", f"nchannels={program.channels}; {limits.name} takes 1 … {limits.channels}", line)
    if program.chunks < 1:
        findings.add("A16", f"nchunksperloop={program.chunks}", line)
    if program.ranks < 1:
        findings.add("A17", f"ngpus={program.ranks}", line)
    if program.collective in _SHARED and program.ranks > 0 and program.chunks % program.ranks:
        findings.add("A21", f"nchunksperloop={program.chunks} is no multiple of ngpus={program.ranks}, and "
                     f"{program.collective} has a piece for each rank", line)
    low, high = program.min_bytes, program.max_bytes
    if min(low or 0, high or 0) < 0:
        findings.add("A12", f"minBytes={low}, maxBytes={high}: sizes start at 0", line)
    elif high == 0:
        findings.add("A10", "maxBytes=0 means no limit to some runtimes and never to others", line)
    elif high is not None and (low or 0) > high:
        findings.add("A11", f"minBytes={low} is above maxBytes={high}", line)
    elif high is not None and low == high and limits.max_bytes_exclusive:
        findings.add("A11", f"minBytes and maxBytes are {high}, and maxBytes itself is not served", line)
    if high is None and findings.target in (None, "msccl"):
        findings.add("A20", "without maxBytes, microsoft/msccl takes 128 MiB as the (exclusive) end", line)
    if program.out_of_place is not None and not (program.in_place or program.out_of_place):
        findings.add("A13", "inplace=0 and outofplace=0", line)


def _gpu(program: Program, gpu: Gpu, findings: Findings, limits: Target, out_of_place: bool) -> None:
    if not gpu.threadblocks:
        findings.add("G05", "has no threadblocks", gpu.line, gpu.id)
    if min(gpu.i_chunks, gpu.o_chunks, gpu.s_chunks) < 0:
        findings.add("G08", "has a negative number of chunks", gpu.line, gpu.id)
    _sizes(program, gpu, findings)
    nodes = 1 + program.ranks + sum(1 + len(tb.steps) for tb in gpu.threadblocks)
    if nodes > NODE_BUDGET:
        findings.add("G09", f"{nodes} elements are stored for this rank; the limit is {NODE_BUDGET}", gpu.line, gpu.id)
    if len(gpu.threadblocks) > limits.threadblocks:
        findings.add("T04", f"has {len(gpu.threadblocks)} threadblocks; {limits.name} takes {limits.threadblocks}",
                     gpu.line, gpu.id)
    ids = [tb.id for tb in gpu.threadblocks]
    if len(set(ids)) < len(ids):
        twice = next(tb for k, tb in enumerate(gpu.threadblocks) if tb.id in ids[:k])
        findings.add("T03", f"two threadblocks have id {twice.id}", twice.line, gpu.id, twice.id)
    elif sorted(ids) != list(range(len(ids))):
        odd = next(tb for tb in gpu.threadblocks if not 0 <= tb.id < len(ids))
        findings.add("T02", f"threadblock ids should be 0 … {len(ids) - 1}", odd.line, gpu.id, odd.id)
    _ends(program, gpu, findings)
    blocks = {tb.id: (tb, posted(tb.steps)) for tb in gpu.threadblocks}
    awaited = {(step.depid, step.deps) for tb in gpu.threadblocks for step in tb.steps if step.depid >= 0}
    for tb in gpu.threadblocks:
        _block(gpu, tb, findings, limits)
        for s, step in enumerate(tb.steps):
            where = (tb.lines[s] if tb.lines else 0, gpu.id, tb.id, s)
            _step(gpu, tb, step, findings, where)
            if out_of_place and step.type in WRITES_DST and step.dstbuf == "i":
                findings.add("S15", "writes i, the send buffer, in a file for out-of-place calls", *where)
            _wait(blocks, tb, step, findings, limits, where)
            if step.hasdep == 1 and (tb.id, s) not in awaited and not _breaks_chain(tb.steps, s):
                findings.add("D09", "hasdep=1, and no step waits for it", *where)


def _sizes(program: Program, gpu: Gpu, findings: Findings) -> None:
    k, n = program.chunks, program.ranks
    for code, name, count, times in (
        ("G06", "i_chunks", gpu.i_chunks, n if program.collective == "allgather" else 1),
        ("G07", "o_chunks", gpu.o_chunks, n if program.collective == "reduce_scatter" else 1),
    ):
        if count and count * times != k and program.collective != "custom":
            right = f"{k // times} or 0" if k % times == 0 else f"nchunksperloop / {times}, which is no whole number"
            findings.add(code, f"{name}={count} with nchunksperloop={k}; for an {program.collective} it is {right}",
                         gpu.line, gpu.id)
            if count * times > k:
                findings.add("G10", f"{name}={count} chunks, but the buffer holds {k // max(1, times)}",
                             gpu.line, gpu.id)


def _ends(program: Program, gpu: Gpu, findings: Findings) -> None:
    sending: Counter[int] = Counter()
    receiving: Counter[int] = Counter()
    taken: dict[tuple[str, int, int], Threadblock] = {}
    for tb in gpu.threadblocks:
        where = (tb.line, gpu.id, tb.id)
        if tb.chan < 0:
            findings.add("T13", f"chan={tb.chan}; use 0", *where)
        elif tb.chan >= 32 and tb.chan >= program.channels:
            findings.add("T08", f"chan={tb.chan}; channels are 0 … 31", *where)
        elif tb.chan >= program.channels > 0:  # fewer has a finding of its own
            findings.add("T09", f"chan={tb.chan} with nchannels={program.channels}", *where)
        for way, peer, count in (("send", tb.send, sending), ("recv", tb.recv, receiving)):
            if peer == -1:
                continue
            if peer == gpu.id:
                findings.add("T07", f"{way}={peer} is this gpu itself", *where)
            elif not 0 <= peer < program.ranks:
                findings.add("T06", f"{way}={peer} with ngpus={program.ranks}", *where)
            first = taken.setdefault((way, peer, tb.chan), tb)
            if first is not tb:
                findings.add("T11", f"a second threadblock with {way}={peer} on channel {tb.chan}; the first is tb "
                             f"{first.id}, line {first.line}", *where)
            count[tb.chan] += 1
            if count[tb.chan] == CONNECTIONS_PER_CHANNEL + 1:
                findings.add("T10", f"more than {CONNECTIONS_PER_CHANNEL} threadblocks {way} on channel {tb.chan}",
                             *where)


def _block(gpu: Gpu, tb: Threadblock, findings: Findings, limits: Target) -> None:
    if not tb.steps:
        findings.add("T14", "has no steps", tb.line, gpu.id, tb.id)
        return
    line = tb.lines[-1] if tb.lines else 0
    if len(tb.steps) > limits.steps:
        findings.add("T05", f"has {len(tb.steps)} steps; {limits.name} takes {limits.steps}", line, gpu.id, tb.id)
    if tb.steps[-1].type == "nop":
        findings.add("S12", "a threadblock ends with a nop", line, gpu.id, tb.id, len(tb.steps) - 1)
    run = 0
    for s, (a, b) in enumerate(zip(tb.steps, tb.steps[1:], strict=False)):
        line = tb.lines[s + 1] if tb.lines else 0
        if a.type == "nop" and b.type != "nop" and b.depid < 0:
            findings.add("D07", "follows a nop but waits for nothing itself", line, gpu.id, tb.id, s + 1)
        merges = (a.type == b.type == "re" and not a.hasdep and b.depid < 0
                  and (a.dstbuf, a.dstoff, a.srcbuf) == (b.dstbuf, b.dstoff, b.srcbuf))
        run = run + 1 if merges else 0
        if merges and a.cnt != b.cnt:
            findings.add("S13", f"merges with the step before, whose cnt is {a.cnt}, not {b.cnt}",
                         line, gpu.id, tb.id, s + 1)
        if run == MAX_FUSED_REDUCES:
            findings.add("S14", f"the {run + 1}th re that merges into one", line, gpu.id, tb.id, s + 1)


_Where = tuple[int, int, int, int]


def _step(gpu: Gpu, tb: Threadblock, step: Step, findings: Findings, where: _Where) -> None:
    if step.type != "nop" and not 1 <= step.cnt <= MAX_CNT:
        findings.add("S06", f"cnt={step.cnt}; it is 1 … {MAX_CNT}", *where)
    if step.type in SENDS and tb.send < 0:
        findings.add("S09", f"{step.type} in a threadblock that has send=-1", *where)
    if step.type in RECEIVES and tb.recv < 0:
        findings.add("S10", f"{step.type} in a threadblock that has recv=-1", *where)
    sizes = {"i": gpu.i_chunks, "o": gpu.o_chunks, "s": gpu.s_chunks}
    for used, name, buffer, offset in (
        (step.type in READS_SRC, "src", step.srcbuf, step.srcoff),
        (step.type in WRITES_DST, "dst", step.dstbuf, step.dstoff),
    ):
        if used and not 0 <= offset < sizes[buffer]:
            has = f"has chunks 0 … {sizes[buffer] - 1}" if sizes[buffer] > 0 else f"({buffer}_chunks) has none"
            findings.add("S07", f"{name}off={offset}; {buffer} {has}", *where)
        elif used and offset + step.cnt > sizes[buffer]:
            findings.add("S08", f"{name}off={offset} and cnt={step.cnt} go beyond the {sizes[buffer]} chunks of "
                         f"{buffer}", *where)
    if step.hasdep not in (0, 1):
        findings.add("D08", f"hasdep={step.hasdep}", *where)


def _wait(
    blocks: dict[int, tuple[Threadblock, list[int | None]]], tb: Threadblock, step: Step, findings: Findings,
    limits: Target, where: _Where,
) -> None:
    if step.depid < 0:
        return
    if step.deps < 0:
        findings.add("D11", f"depid={step.depid} with deps={step.deps}", *where)
        return
    if step.depid > limits.depid:
        findings.add("D06", f"depid={step.depid}; {limits.name} can wait for threadblocks 0 … {limits.depid}", *where)
    if step.depid not in blocks:
        findings.add("D01", f"waits for threadblock {step.depid}, which this gpu does not have", *where)
        return
    other, posts = blocks[step.depid]
    ends = posts[step.deps] if step.deps < len(posts) else None
    if other is tb:
        # Waiting for what this threadblock has posted already is only useless.
        if ends is None or ends >= where[3]:
            findings.add("D05", f"waits for step {step.deps} of its own threadblock", *where)
    elif step.deps >= len(other.steps):
        findings.add("D02", f"waits for step {step.deps} of threadblock {step.depid}, which has {len(other.steps)}",
                     *where)
    else:
        named = other.steps[step.deps]
        if ends is None:
            code = "D04" if named.type == "nop" else "D03"
            line = f" (line {other.lines[step.deps]})" if other.lines else ""
            findings.add(code, f"waits for step {step.deps} of threadblock {step.depid}{line}, which never posts: "
                         f"it has hasdep={named.hasdep}", *where)
        elif ends != step.deps:
            findings.add("D10", f"waits for step {step.deps} of threadblock {step.depid}, which does not post; "
                         f"step {ends} does", *where)


def _breaks_chain(steps: tuple[Step, ...], s: int) -> bool:
    """Posts only to end a chain of merged additions."""
    return s + 1 < len(steps) and steps[s].type == steps[s + 1].type == "re"
