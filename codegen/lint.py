"""Will this runtime pick this file for this call? Yes, or every reason why not; and repairs that need no thought."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latecomer.codegen.findings import RULES, RUNTIMES, Finding, Findings
from latecomer.codegen.msccl_reader import NOT_A_PROGRAM, read_with_notes, respelled
from latecomer.codegen.msccl_text import LARGEST_FILE, tags
from latecomer.codegen.msccl_xml import write
from latecomer.codegen.serves import Call, refusals
from latecomer.codegen.structure import check_structure
from latecomer.codegen.targets import LOADING, Target, target
from latecomer.schedules.errors import InputError
from latecomer.schedules.program import Program

MAX_FILES = {"msccl": 4, "msccl-executor": 1024, "rccl": 1024}
"""Files that a runtime loads: of the list that microsoft/msccl is given, of those for one number of ranks elsewhere."""
SCANS = ("msccl-executor", "rccl")
"""Runtimes that read a directory of files."""
MAX_ATTRIBUTES = 16
"""Of one tag; those after are dropped."""
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

_NOT_LOADED, _BODY, _IGNORED = (RULES[code].outcome for code in ("A02", "A15", "L01"))
_NO_START = "communicator start-up fails"
_UNPICKED = frozenset({_NOT_LOADED, _BODY, _IGNORED})
"""Outcomes that keep a file from being picked at all."""
_REFUSED = frozenset(
    code for code, rule in RULES.items() if rule.outcome in (_NOT_LOADED, _BODY) and rule.breaks & set(SCANS)
)
"""Findings for which a runtime that scans directories gives up start-up, where the first tag can be read."""
_NO_TAG = frozenset({"X01", "X02", "X04", "X05", "X06"})
_SCANNED = frozenset(
    {"nchunksperloop", "nchannels", "ngpus", "coll", "minBytes", "maxBytes", "inplace", "outofplace"}
)
_SCANNED_COLLECTIVES = frozenset(
    {"allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce", "send", "recv", "gather", "scatter",
     "alltoallv"}
)
"""What a directory's scan wants of the first tag."""


@dataclass(frozen=True)
class Answer:
    """For one file: will it be picked, and the findings; errors are the reasons why not.

    `perhaps`: of several files in a directory that serve the call it is one, and which of them runs is not certain.
    """

    file: str
    picked: bool
    findings: tuple[Finding, ...]
    perhaps: bool = False

    @property
    def errors(self) -> list[Finding]:
        """The findings that are errors."""
        return [finding for finding in self.findings if finding.severity == "error"]


def lint(files: Sequence[Path], call: Call, to: str) -> list[Answer]:
    """One answer per file; of a directory, for all that is in it, since a runtime reads it all.

    Raises `InputError` where a path cannot be read. A file is picked if the runtime loads it, its kernels run it,
    it serves the call, and no other file of its directory is in its way.
    """
    goal = target(to)
    answers = []
    for path in files:
        if path.is_dir():
            answers += _directory(_inside(path), call, goal)
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


def _inside(directory: Path) -> list[Path]:
    try:
        inside = sorted(directory.iterdir())
    except OSError as error:
        raise InputError(f"cannot read {directory}: {error.strerror}") from error
    if not inside:
        raise InputError(f"{directory} is empty; name a directory with MSCCL XML files")
    return inside


@dataclass(frozen=True)
class _Entry:
    """What is behind a name in a directory.

    Attributes
    ----------
    spoils:
        Why no file beside it can be used, and what comes of that.
    rival:
        The runtime loads it and takes it for the call, whatever else is wrong with it.
    place:
        It takes one of the places that the runtime has for files.
    """

    answer: Answer
    spoils: tuple[str, str] | None = None
    rival: bool = False
    place: bool = False

    @property
    def name(self) -> str:
        return Path(self.answer.file).name


def _directory(inside: Sequence[Path], call: Call, goal: Target) -> list[Answer]:
    """The answers, each in the light of the other files.

    A scan ends at a file whose first tag it cannot read, and start-up fails where the rest of a file for as many
    ranks is refused. Of files for one call the first runs, which is the first by name in some builds and the first
    that the file system lists in others. microsoft/msccl scans nothing: it is given a list, and skips what it refuses.
    """
    entries = [_entry(path, call, goal) for path in inside]
    spoilers = [entry for entry in entries if entry.spoils]
    rivals = [entry for entry in entries if entry.rival]
    late = _beyond([entry for entry in entries if entry.place], goal)
    result = []
    for entry in entries:
        answer, findings = entry.answer, Findings(entry.answer.file, goal.name)
        spoiler = next((other for other in spoilers if other is not entry), None)
        rival = next((other for other in rivals if other is not entry), None)
        perhaps = False
        if spoiler is not None and spoiler.spoils is not None:
            why, outcome = spoiler.spoils
            findings.add("L07", f"the directory also holds {spoiler.name}, {why}", outcome=outcome)
        elif answer.file in late:
            code, reason, outcome = late[answer.file]
            findings.add(code, reason, outcome=outcome)
        elif answer.picked and goal.name == "msccl" and rivals[0] is not entry:
            findings.add("L08", f"{rivals[0].name}, before it in the order of names, is for the same calls",
                         outcome="the first of the list runs")
        elif answer.picked and goal.name != "msccl" and rival is not None:
            findings.add("L08", f"{rival.name} is for the same calls, and either may be picked: some builds scan in "
                         "the order of names, others in that of the file system")
            perhaps = True
        picked = answer.picked and not findings.found
        result.append(Answer(answer.file, picked, (*answer.findings, *findings.found), perhaps))
    return result


def _beyond(placed: Sequence[_Entry], goal: Target) -> dict[str, tuple[str, str, str]]:
    """Of the files that find no place, which are all where a scan overflows: code, reason and outcome."""
    most = MAX_FILES.get(goal.name, min(MAX_FILES.values()))
    if len(placed) <= most:
        return {}
    if goal.name in SCANS:
        reason = f"the directory has {len(placed)} files for as many ranks, and {goal.name} loads at most {most}"
        return {entry.answer.file: ("L07", reason, _NO_START) for entry in placed}
    reason = f"it is not among the first {most} in the order of names, and {goal.name} loads no more"
    return {entry.answer.file: ("L08", reason, _NOT_LOADED) for entry in placed[most:]}


def _entry(path: Path, call: Call, goal: Target) -> _Entry:
    """What `path`, a name in a directory, is to the runtime. Only regular files are opened."""
    scanned = goal.name != "msccl"
    stops = ("at which the runtime's scan stops", RULES["L07"].outcome) if scanned else None
    if not path.is_file() and not path.is_symlink():
        kind = "a directory" if path.is_dir() else "a pipe, a socket or a device"
        note = Finding("L07", "note", f"{path.name} is {kind}, no file", "skipped by the runtimes", str(path))
        return _Entry(Answer(str(path), False, (note,)))
    findings = Findings(str(path), goal.name)
    unusable = _unusable(path)
    if unusable is not None:
        findings.add("L07", unusable, outcome=None if scanned else "skipped, with a warning")
        return _Entry(Answer(str(path), False, tuple(findings.found)), stops)
    text = text_of(path)
    answer = lint_text(text, str(path), call, goal)
    ranks = _ranks_scanned(text)
    if scanned and ranks is None:
        return _Entry(answer, stops)
    refused = ranks == call.ranks and any(finding.code in _REFUSED for finding in answer.errors)
    broken = ("which is for as many ranks and is refused when it is loaded", _NO_START)
    return _Entry(
        answer, broken if scanned and refused else None,
        rival=not any(finding.outcome in _UNPICKED for finding in answer.errors),
        place=ranks == call.ranks or goal.name not in SCANS,
    )


def _unusable(path: Path) -> str | None:
    """Why a file in a directory is no program, without reading more of it than that takes."""
    if not path.is_file():
        return f"{path.name} is a link to no regular file, and the runtime opens it"
    try:
        with open(path, "rb") as file:
            if b"<algo" not in file.read(65536):
                return f"{path.name} is not an MSCCL XML; the runtime reads every file in its directory"
        text_of(path)
    except OSError as error:
        return f"cannot read {path.name}: {error.strerror}"
    except InputError as error:
        return str(error)
    return None


def _ranks_scanned(text: str) -> int | None:
    """ngpus in the first tag; None where the scan of a directory cannot read that tag and stops."""
    try:
        root = next(tags(text, "file"), None)
    except InputError:
        return None
    if root is None or any(code in _NO_TAG for code, _ in root.faults):
        return None
    read = dict(list(root.attributes.items())[:MAX_ATTRIBUTES])
    if any(key not in read for key in _SCANNED) or read["coll"] not in _SCANNED_COLLECTIVES:
        return None
    try:
        return int(read["ngpus"], 0)
    except ValueError:
        return 0


def text_of(path: Path) -> str:
    """What is in the file (`-`: standard input), of which no more is read than a program can have.

    Pipes that somebody writes to are read too. Raises `InputError` naming it.
    """
    try:
        data = sys.stdin.buffer.read(LARGEST_FILE + 1) if str(path) == "-" else _bytes_of(path)
        if len(data) > LARGEST_FILE:
            raise InputError(f"{path} has over {LARGEST_FILE // 2**20} MiB; no runtime loads a program that large")
        return data.decode()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file: byte {error.start} is no UTF-8") from error


def _bytes_of(path: Path) -> bytes:
    # Opening a pipe that nobody writes to would wait for ever, unless it is opened without waiting.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            raise InputError(f"{path} is a device, not a file; name an MSCCL XML, or - for standard input")
        os.set_blocking(file.fileno(), True)
        data = file.read(LARGEST_FILE + 1)
    if not data and stat.S_ISFIFO(mode):
        raise InputError(f"{path} is a pipe that nobody writes to; name an MSCCL XML, or - for standard input")
    return data


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
