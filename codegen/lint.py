"""Will this runtime pick this file for this call? Yes, or every reason why not; and repairs that need no thought."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latecomer.codegen.findings import RUNTIMES, Finding, Findings
from latecomer.codegen.msccl_reader import NOT_A_PROGRAM, read_with_notes, respelled
from latecomer.codegen.msccl_text import LARGEST_FILE
from latecomer.codegen.msccl_xml import write
from latecomer.codegen.serves import Call, refusals
from latecomer.codegen.structure import check_structure
from latecomer.codegen.targets import LOADING, Target, target
from latecomer.schedules.errors import InputError
from latecomer.schedules.program import Program

MAX_FILES = {"msccl": 4, "msccl-executor": 1024, "rccl": 1024}
FIXED_MAX_BYTES = 2**30

STATE = {
    "msccl": f"microsoft/msccl is an NCCL 2.12 fork that ended in 2023; it loads files with {LOADING['msccl']}",
    "msccl-executor": "msccl-executor-nccl is an NCCL 2.23 fork, dormant since the end of 2024; one GPU per process",
    "rccl": "RCCL lost MSCCL in 2026: only ROCm 5.7 to 7.0 run this, off MI300X with RCCL_MSCCL_FORCE_ENABLE=1",
}
"""What there is to know of a runtime before anything else is looked at."""

_MENDED = frozenset(
    ("X01", "X02", "X04", "X05", "X06", "X09", "X10", "X11", "X13", "X15", "A01", "A05", "A06", "A07", "A08", "A09",
     "A10", "A20", "S05")
)
"""Findings that a repaired copy no longer has."""


@dataclass(frozen=True)
class Answer:
    """For one file: will it be picked, and the findings; errors are the reasons why not."""

    file: str
    picked: bool
    findings: tuple[Finding, ...]


def lint(files: Sequence[Path], call: Call, to: str) -> list[Answer]:
    """One answer per file; of a directory, for all that is in it, since a runtime reads it all.

    Raises `InputError` where a path cannot be read. A file is picked if the runtime loads it, its kernels run it,
    it serves the call, and no file before it serves the call too.
    """
    goal = target(to)
    answers = []
    for path in files:
        if path.is_dir():
            inside = sorted(path.iterdir())
            if not inside:
                raise InputError(f"{path} is empty; name a directory with MSCCL XML files")
            answers += _directory(inside, call, goal)
        else:
            answers.append(lint_text(text_of(path), str(path), call, goal))
    return answers


def lint_text(text: str, source: str, call: Call, goal: Target) -> Answer:
    """The answer for one file's text."""
    runtimes = [goal.name] if goal.name in RUNTIMES else list(RUNTIMES)
    notes: list[Finding] = []
    for runtime in runtimes:
        findings = Findings(source, goal.name)
        try:
            program, in_text = read_with_notes(text, source, goal.name)
        except InputError as error:
            findings.add("L10", str(error))
            return Answer(source, False, tuple(findings.found))
        findings.found += in_text
        check_structure(program, findings, goal)
        for code, reason in refusals(program, call, target(runtime)):
            if code == "L02" and any(note.code == "A04" for note in in_text):
                continue  # said already, and better
            findings.add(code, reason if len(runtimes) == 1 else f"{runtime}: {reason}", program.line)
        notes += [f for f in findings.found if f not in notes]
    return Answer(source, not any(f.severity == "error" for f in notes), tuple(notes))


def _directory(inside: Sequence[Path], call: Call, goal: Target) -> list[Answer]:
    """A stray file stops the scan for all. Of files for the same call one runs: the first, and in which order a scan
    meets them nobody says, so then no file can count on it; a broken one may be met first as well."""
    answers: list[Answer] = []
    stray = None
    for path in inside:
        if path.is_dir():
            continue
        answer = _stray(path, Findings(str(path), goal.name)) or lint_text(text_of(path), str(path), call, goal)
        if any(f.code == "L07" for f in answer.findings):
            stray = stray or path
        answers.append(answer)
    rivals = [answer.file for answer in answers if answer.picked or _matches(answer)]
    result = []
    for answer in answers:
        findings = Findings(answer.file, goal.name)
        others = [file for file in rivals if file != answer.file]
        if stray is not None and answer.file != str(stray):
            findings.add("L07", f"the directory also holds {stray.name}, at which the runtime's scan stops")
        elif stray is None and answer.picked and others:
            findings.add("L08", f"{others[0]} is for the same calls; the first that the directory's scan meets runs, "
                         "and its order is not that of the names")
        picked = answer.picked and stray is None and not findings.found
        result.append(replace(answer, picked=picked, findings=(*answer.findings, *findings.found)))
    return result


def _matches(answer: Answer) -> bool:
    """A file that a call selects by its first line, whatever is wrong further down."""
    return not any(f.severity == "error" and f.code[0] in "LXA" for f in answer.findings)


def _stray(path: Path, findings: Findings) -> Answer | None:
    """The answer for a file that is no MSCCL XML at all."""
    if not path.is_file():
        findings.add("L07", f"{path.name} is no regular file; the runtime opens everything in its directory")
        return Answer(str(path), False, tuple(findings.found))
    try:
        with open(path, "rb") as file:
            start = file.read(65536).decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if "<algo" in start:
        return None
    findings.add("L07", f"{path.name} is not an MSCCL XML; the runtime reads every file in its directory")
    return Answer(str(path), False, tuple(findings.found))


def text_of(path: Path) -> str:
    """What is in the file (`-`: standard input), of which no more is read than a program can have.

    Raises `InputError` naming it.
    """
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(LARGEST_FILE + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise InputError(f"{path} has over {LARGEST_FILE // 2**20} MiB; no runtime loads a program that large")
        return data.decode()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file: byte {error.start} is no UTF-8") from error


def fix(text: str, source: str, to: str) -> tuple[str, list[Finding]]:
    """A copy of the file for `to` with the mechanical faults gone, and those that were repaired.

    Missing attributes get the values that change nothing (minBytes 0, maxBytes 1 GiB, the other in-place flag), names
    the runtime's spelling, and the text its lexical rules. Raises `InputError` for a file of which parts cannot be
    read: guessing them would make another program.
    """
    goal = target(to)
    before = read_with_notes(text, source, to)[1]
    program, notes = read_with_notes(respelled(text), source, to)
    respelt = [note for note in before if note.code in ("A03", "A04", "S02") and note not in notes]
    for note in notes:
        if note.code in NOT_A_PROGRAM:
            raise InputError(f"{note.source}:{note.line}: {note.message}; that takes a person to repair")
    findings = Findings(source, to)
    check_structure(program, findings, goal)
    repaired = [*respelt, *(f for f in (*notes, *findings.found) if f.code in _MENDED)]
    if program.out_of_place is None and not any(f.code == "A07" for f in repaired):
        findings = Findings(source)
        findings.add("A07", "<algo> has no outofplace", program.line)
        repaired += findings.found
    return write(_mended(program, goal), to), repaired


def _mended(program: Program, goal: Target) -> Program:
    in_place = bool(program.in_place)
    high = program.max_bytes
    if high is None or (high == 0 and goal.max_bytes_exclusive):
        high = FIXED_MAX_BYTES + goal.max_bytes_exclusive
    return replace(
        program, name=(program.name or "program")[:63], in_place=in_place,
        out_of_place=not in_place if program.out_of_place is None else program.out_of_place,
        min_bytes=program.min_bytes or 0, max_bytes=high,
    )
