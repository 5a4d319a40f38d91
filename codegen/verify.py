"""Does a program compute its collective, whatever the timing, on the runtime it is for?

`examine` answers with findings, `verify` raises the first error. In order: the text's dialect and the
structure; whether it can get stuck, from the smallest to the largest message it serves; the result on all
ranks, in one interleaving; and that no other interleaving differs: no two unordered accesses where one
writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latecomer.codegen.deadlock import smallest_batch, stuck
from latecomer.codegen.findings import Finding, Findings
from latecomer.codegen.graph import CAPACITY, StepGraph, in_order, step_graph
from latecomer.codegen.hazards import hazards, overlaps
from latecomer.codegen.msccl_reader import read_with_notes
from latecomer.codegen.serves import placements, unserved
from latecomer.codegen.structure import check_structure
from latecomer.codegen.symbolic import Layout, interpret
from latecomer.codegen.targets import MAX_CNT, Target
from latecomer.codegen.targets import target as named_target
from latecomer.codegen.timing import unsure_places
from latecomer.schedules.collector import paused
from latecomer.schedules.errors import IncorrectProgram, InputError
from latecomer.schedules.program import RECEIVES, SENDS, Program

MAX_CELLS = 4_000_000
"""Chunks of one kind of buffer on all ranks: 64 ranks of 62,500."""

_RUNS_ANYWAY = frozenset(
    ["S05", "S11", "S12", "S13", "S14", "S15", "T04", "T05", "T10", "G05", "G06", "G07", "D06", "D07", "D08"]
)
"""Structural errors that leave the meaning clear enough to go on."""


@dataclass(frozen=True)
class Report:
    """What was found. `correct` says that nothing found is an error; `facts` is what was established."""

    findings: tuple[Finding, ...]
    facts: dict[str, int | str | bool]

    @property
    def correct(self) -> bool:
        """No finding is an error."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def errors(self) -> list[Finding]:
        """The findings that are."""
        return [finding for finding in self.findings if finding.severity == "error"]


def examine_text(
    text: str, source: str = "program", target: str | None = None, sizes: Sequence[int] | None = None
) -> Report:
    """`examine` for a file, with its lexical faults. Raises `InputError` where it cannot be read at all."""
    program, notes = read_with_notes(text, source, target)
    try:
        report = examine(program, target, sizes)
    except InputError:  # what the text is blamed for already explains it
        if not notes:
            raise
        return Report(tuple(notes), {})
    return Report((*notes, *report.findings), report.facts)


@paused()
def examine(program: Program, target: str | None = None, sizes: Sequence[int] | None = None) -> Report:
    """All findings about `program` on `target` (None: on any runtime), for messages of `sizes` bytes.

    `sizes` are the sizes asked about (by default all that the program says it serves). O(steps² / 64 per
    rank).
    """
    findings = Findings(program.source or "program", target)
    goal = named_target(target) if target is not None else None
    check_structure(program, findings, goal)
    facts: dict[str, int | str | bool] = {
        "ranks": program.ranks, "chunks": program.chunks, "collective": program.collective,
        "threadblocks": max((len(gpu.threadblocks) for gpu in program.gpus), default=0),
        "channels": program.channels, "steps": sum(1 for _ in program.steps()),
    }
    if program.collective == "custom":
        facts["result_judged"] = False
    if all(finding.code in _RUNS_ANYWAY for finding in findings.errors):
        _sizes_one_can_run(program)
        _behaviour(program, findings, facts, sizes, goal)
    if sizes is not None:
        reasons = [reason for size in sizes for reason in unserved(program, size, goal)]
        facts["size_served"] = not reasons
        if reasons:
            facts["size_note"] = f"{reasons[0]}; the runtime runs something else, silently (see latecomer lint)"
    found = sorted(findings.found, key=lambda f: {"error": 0, "warning": 1, "note": 2}[f.severity])
    return Report(tuple(found), facts)


def _sizes_one_can_run(program: Program) -> None:
    """Refuse a buffer of absurd length before anything is allocated for it; real files have thousands of chunks."""
    longest = max((max(gpu.i_chunks, gpu.o_chunks, gpu.s_chunks) for gpu in program.gpus), default=0)
    if max(program.chunks, longest) * len(program.gpus) > MAX_CELLS:
        raise InputError(
            f"{program.source or 'program'}: buffers of {max(program.chunks, longest)} chunks on {len(program.gpus)} "
            f"ranks are more than can be checked ({MAX_CELLS} in all); no runtime is given such a file"
        )


def verify(program: Program, target: str | None = None, sizes: Sequence[int] | None = None) -> Report:
    """`examine`, raising `IncorrectProgram` with the first error."""
    report = examine(program, target, sizes)
    for finding in report.errors:
        raise IncorrectProgram(f"{finding.code}: {finding.message}. At run time: {finding.outcome}",
                               gpu=finding.gpu, tb=finding.tb, step=finding.step)
    return report


def _behaviour(
    program: Program, findings: Findings, facts: dict[str, int | str | bool], sizes: Sequence[int] | None,
    goal: Target | None,
) -> None:
    smallest = smallest_batch(program, sizes)
    graph = step_graph(program, split=smallest < _longest_forward(program))
    facts["rendezvous_safe"] = stuck(program, capacity=0) is None
    if not facts["rendezvous_safe"]:
        if _deadlock(program, graph, MAX_CNT, "K01", findings):
            return
        _deadlock(program, graph, smallest, "K02", findings)
        findings.add("K03", f"a send must be able to end before its receive starts ({CAPACITY[program.protocol]} "
                     f"messages in flight with {program.protocol})", program.line)
    order = in_order(graph)
    if order is None:  # in single chunks the queues would be too short, which has been looked at: leave them out
        graph.full = [[] for _ in graph.nodes]
        order = in_order(graph)
    assert order is not None, "with queues of any length it ends, as it does with the protocol's"
    for in_place in placements(program, goal):
        lacking = _results(program, graph, order, in_place, findings)
        if lacking:
            facts["contributions_missing"] = min(lacking, int(facts.get("contributions_missing", lacking)))


def _deadlock(program: Program, graph: StepGraph, chunks: int, code: str, findings: Findings) -> bool:
    """Does it get stuck with `chunks` in a message? The finding says where."""
    where = stuck(program, per_message=chunks)
    if where is None:
        return False
    gpu, tb, step = where.chain[0]
    size = f"with {chunks} chunks in a message " if code == "K02" else ""
    findings.add(code, f"{size}no step can go on: {where}", graph.nodes[graph.of[gpu, tb][step][0]].line, gpu, tb, step)
    return True


def _longest_forward(program: Program) -> int:
    """Chunks of the longest step that sends on what it receives."""
    return max((step.cnt for *_, step in program.steps() if step.type in SENDS & RECEIVES), default=0)


def _results(program: Program, graph: StepGraph, order: list[int], in_place: bool, findings: Findings) -> int:
    """Adds what is wrong; how many contributions are missing where the fewest are, 0: nowhere."""
    call = "in place" if in_place else "out of place"
    layouts = {gpu.id: Layout(program, gpu.id, in_place) for gpu in program.gpus}
    for gpu, tb, s, step in program.steps():
        if overlaps(step, layouts[gpu.id]):
            findings.add("H04", f"called {call}, the {step.cnt} chunks that it reads and those that it writes overlap",
                         tb.lines[s] if tb.lines else 0, gpu.id, tb.id, s)
    wrong = interpret(program, graph, order, in_place)
    for outcome in wrong[:1]:
        at = graph.nodes[outcome.node] if outcome.node is not None else None
        owner = next((g for g in program.gpus if g.id == outcome.rank), None)
        line = at.line if at is not None else owner.line if owner is not None else program.line
        more = f" (and {len(wrong) - 1} more chunks)" if len(wrong) > 1 else ""
        findings.add(outcome.code, f"called {call}, {outcome.why}{more}", line,
                     *((at.gpu, at.tb, at.step) if at is not None else (outcome.rank,)))
    races = hazards(program, graph, order, in_place)
    racing = {(graph.nodes[race.first].gpu, race.location) for race in races if not race.queues}
    unsure = racing if wrong else unsure_places(program, graph, order, in_place, racing)
    for race in races:
        node = graph.nodes[race.second]
        code = "H03" if race.queues else "H01" if (node.gpu, race.location) in unsure else "H02"
        other = graph.nodes[race.first]
        buffer, offset = race.location
        findings.add(code, f"called {call}, it and {graph.where(race.first)} (line {other.line}) both use chunk "
                     f"{offset} of {buffer}, one of them writes, and nothing orders them",
                     node.line, node.gpu, node.tb, node.step)
    return min((outcome.missing for outcome in wrong if outcome.missing), default=0)
