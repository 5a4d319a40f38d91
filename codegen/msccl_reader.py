"""Text → `Program`, as lenient as the runtimes, with a finding for everything they would trip over."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple, cast, get_args

from latecomer.codegen.findings import Finding, Findings
from latecomer.codegen.msccl_text import LARGEST_FILE, Tag, tags
from latecomer.codegen.targets import MAX_NAME
from latecomer.schedules.collector import paused
from latecomer.schedules.errors import InputError
from latecomer.schedules.program import (
    BufferName,
    Gpu,
    Program,
    ProgramCollective,
    Protocol,
    Step,
    StepType,
    Threadblock,
)

_COLLECTIVES = {
    "allreduce": "allreduce", "allgather": "allgather", "alltoall": "alltoall", "broadcast": "broadcast",
    "reduce": "reduce", "reduce_scatter": "reduce_scatter", "reducescatter": "reduce_scatter", "custom": "custom",
    "send": "custom", "recv": "custom", "gather": "custom", "scatter": "custom", "alltoallv": "custom",
}
_STEP_TYPES = frozenset(get_args(StepType))
_BUFFERS = frozenset(get_args(BufferName))
_STEP_KEYS = ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep")
_INT = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
"""As C's strtol reads, with the base by prefix: in `08` it finds a 0."""
DEEPEST = 100
"""Levels of unknown elements that are skipped; the format itself has four."""
LARGEST_INT = 2**31 - 1

NOT_A_PROGRAM = frozenset({"A02", "A03", "A04", "G04", "T01", "S01", "S02", "S04", "X12", "X14"})
"""Findings after which `read` gives up: there is no telling what the program would be."""


def read(text: str, source: str = "program") -> Program:
    """The program in `text`, whatever runtime it was written for. `source` names the file in messages.

    Raises `InputError` with file and line for anything that is not a complete MSCCL program. O(text).
    """
    program, notes = read_with_notes(text, source)
    for note in notes:
        if note.code in NOT_A_PROGRAM:
            raise InputError(f"{note.source}:{note.line}: {note.message}")
    return program


@paused()
def read_with_notes(
    text: str, source: str = "program", target: str | None = None
) -> tuple[Program, list[Finding]]:
    """The program, and what is wrong with its text for `target` (None: for the runtimes in general).

    What is missing or unreadable is replaced as the runtimes would (0), and noted. Raises `InputError` only
    where there is nothing to read: no `<algo>`, broken tags, a file cut off.
    """
    if len(text) > LARGEST_FILE:
        raise InputError(f"{source}: {len(text)} bytes; no runtime loads a program that large")
    if "\0" in text[:4096]:
        raise InputError(f"{source} is a binary file, not an MSCCL program")
    reader = _Reader(text, source, target)
    return reader.program(), reader.findings.found


class _Place(NamedTuple):
    gpu: int | None = None
    tb: int | None = None
    step: int | None = None


class _Reader:
    def __init__(self, text: str, source: str, target: str | None) -> None:
        self.source = source
        self.findings = Findings(source, target)
        self._tags = self._noted(tags(text, source))
        self._line = 1

    def _noted(self, tokens: Iterator[Tag]) -> Iterator[Tag]:
        for tag in tokens:
            for code, message in tag.faults:
                self.findings.add(code, message, tag.line)
            self._line = tag.line
            if tag.name:
                yield tag

    def _children(self, parent: str, child: str | None) -> Iterator[Tag]:
        """The `child` elements of `parent`; others are skipped. Ends with `</parent>`."""
        for tag in self._tags:
            if tag.closing:
                if tag.name != parent:
                    raise InputError(f"{self.source}:{tag.line}: </{tag.name}> where </{parent}> should be")
                return
            if tag.name == child:
                yield tag
                continue
            self.findings.add("X11", f"<{tag.name}> in <{parent}> is not part of the format", tag.line)
            if not tag.empty:
                self._skip(tag)
        raise InputError(f"{self.source}:{self._line}: <{parent}> does not end; is the file cut off?")

    def _skip(self, opened: Tag) -> None:
        depth = 1
        for tag in self._tags:
            depth += -1 if tag.closing else 0 if tag.empty else 1
            if depth > DEEPEST:
                raise InputError(f"{self.source}:{tag.line}: elements nested more than {DEEPEST} deep; "
                                 "this is not an MSCCL program")
            if depth == 0:
                return
        raise InputError(f"{self.source}:{opened.line}: <{opened.name}> does not end; is the file cut off?")

    def _int(self, tag: Tag, key: str, place: _Place, missing: str, most: int = LARGEST_INT) -> int:
        """The attribute as the runtimes read it: base by prefix, 0 for garbage."""
        text = tag.attributes.get(key)
        if text is None:
            self.findings.add(missing, f"<{tag.name}> has no {key}{_meant(tag, key)}", tag.line, *place)
            return 0
        match = _INT.match(text)
        if match is None or match.end() != len(text):
            self.findings.add("X12", f"<{tag.name}>: {key}={text[:30]!r} is not a whole number", tag.line, *place)
            if match is None:
                return 0
        digits = match[2]
        base = 16 if digits[:2] in ("0x", "0X") else 10
        if base == 10 and len(digits) > 1 and digits[0] == "0":
            self.findings.add("X13", f"<{tag.name}>: {key}={text[:30]!r} means an octal number", tag.line, *place)
            base = 8
        value = int(digits, base) if len(digits) <= 20 else most + 1
        if value > most:
            self.findings.add("X14", f"<{tag.name}>: {key}={text[:30]} is too large a number", tag.line, *place)
            value = most
        return -value if match[1] == "-" else value

    def program(self) -> Program:
        root = next(self._tags, None)
        if root is None or root.name != "algo" or root.closing:
            found = f"<{root.name}>" if root else "nothing"
            line = root.line if root else 1
            raise InputError(f"{self.source}:{line}: not an MSCCL program: it should start with <algo …>, "
                             f"found {found}")
        gpus = () if root.empty else tuple(self._gpu(tag) for tag in self._children("algo", "gpu"))
        for tag in self._tags:
            self.findings.add("X03", f"<{tag.name}> after </algo>", tag.line)
            break
        return self._root(root, gpus)

    def _root(self, root: Tag, gpus: tuple[Gpu, ...]) -> Program:
        name = root.attributes.get("name")
        if name is None:
            self.findings.add("A01", "<algo> has no name", root.line)
        elif len(name) > MAX_NAME:
            self.findings.add("X15", f"<algo>: the name has {len(name)} characters", root.line)
        proto = self._word(root, "proto", {p: p for p in get_args(Protocol)}, "A03", "Simple")
        coll = self._word(root, "coll", _COLLECTIVES, "A04", "custom")
        spelling = root.attributes.get("coll")
        if spelling in ("reduce_scatter", "reducescatter"):
            wrong = "A05" if spelling == "reduce_scatter" else "A06"
            self.findings.add(wrong, f"<algo>: coll=\"{spelling}\" is the other runtimes' spelling", root.line)
        if spelling is not None and spelling in _COLLECTIVES and _COLLECTIVES[spelling] == "custom":
            self.findings.add("A19", f"<algo>: not every runtime knows coll=\"{spelling}\"", root.line)
        threads = root.attributes.get("nthreads")
        if threads is not None and (not (threads.isascii() and threads.isdigit()) or int(threads[:9]) % 32):
            self.findings.add("A18", f"<algo>: nthreads={threads[:20]!r} is not a multiple of 32", root.line)
        none = _Place()
        return Program(
            name=name, collective=cast(ProgramCollective, coll), ranks=self._int(root, "ngpus", none, "A02"),
            channels=self._int(root, "nchannels", none, "A02"),
            chunks=self._int(root, "nchunksperloop", none, "A02"),
            protocol=cast(Protocol, proto), in_place=self._flag(root, "inplace", "A02"),
            out_of_place=self._flag(root, "outofplace", "A07"), min_bytes=self._bytes(root, "minBytes", "A08"),
            max_bytes=self._bytes(root, "maxBytes", "A09"), gpus=gpus, source=self.source, line=root.line,
        )

    def _word(self, root: Tag, key: str, known: dict[str, str], code: str, otherwise: str) -> str:
        text = root.attributes.get(key)
        if text is None:
            self.findings.add("A02", f"<algo> has no {key}{_meant(root, key)}", root.line)
            return otherwise
        if text not in known:
            self.findings.add(code, f"<algo>: {key}={text[:30]!r}; the runtimes know {', '.join(known)}", root.line)
            return known.get(_spelled(text, known) or "", otherwise)
        return known[text]

    def _flag(self, root: Tag, key: str, missing: str) -> bool | None:
        value = self._int(root, key, _Place(), missing)
        if value not in (0, 1):
            self.findings.add("A14", f"<algo>: {key}={value}; it should be 0 or 1", root.line)
        return bool(value) if key in root.attributes else None

    def _bytes(self, root: Tag, key: str, missing: str) -> int | None:
        value = self._int(root, key, _Place(), missing, 2**63 - 1)
        return value if key in root.attributes else None

    def _gpu(self, tag: Tag) -> Gpu:
        here = _Place(self._int(tag, "id", _Place(), "G04"))
        i, o, s = (self._int(tag, key, here, "G04") for key in ("i_chunks", "o_chunks", "s_chunks"))
        blocks = () if tag.empty else tuple(self._block(t, here) for t in self._children("gpu", "tb"))
        assert here.gpu is not None
        return Gpu(here.gpu, i, o, s, blocks, tag.line)

    def _block(self, tag: Tag, gpu: _Place) -> Threadblock:
        here = gpu._replace(tb=self._int(tag, "id", gpu, "T01"))
        send, recv, chan = (self._int(tag, key, here, "T01") for key in ("send", "recv", "chan"))
        steps: list[Step] = []
        lines = []
        for child in () if tag.empty else self._children("tb", "step"):
            steps.append(self._step(child, here, len(steps)))
            lines.append(child.line)
            if not child.empty:
                self._skip(child)
        assert here.tb is not None
        return Threadblock(here.tb, send, recv, chan, tuple(steps), tag.line, tuple(lines))

    def _step(self, tag: Tag, block: _Place, position: int) -> Step:
        here = block._replace(step=position)
        a = tag.attributes
        # Nearly every step of nearly every file is well formed: try the short way first.
        try:
            fast = Step(cast(StepType, a["type"]), cast(BufferName, a["srcbuf"]), int(a["srcoff"]),
                        cast(BufferName, a["dstbuf"]), int(a["dstoff"]), int(a["cnt"]), int(a["depid"]),
                        int(a["deps"]), int(a["hasdep"]))
            if (fast.type in _STEP_TYPES and fast.srcbuf in _BUFFERS and fast.dstbuf in _BUFFERS
                    and a["s"] == str(position) and all(_PLAIN.fullmatch(a[key]) for key in _NUMBERS)):
                return fast
        except (KeyError, ValueError):
            pass
        return self._odd_step(tag, here)

    def _odd_step(self, tag: Tag, here: _Place) -> Step:
        numbers = {key: self._int(tag, key, here, "S01") for key in ("s", *_NUMBERS)}
        if "cnt" not in tag.attributes:
            numbers["cnt"] = 1  # so that one fault is one finding
        if "s" in tag.attributes and numbers["s"] != here.step:
            self.findings.add("S05", f"s=\"{tag.attributes['s']}\" on step {here.step} of its threadblock",
                              tag.line, *here)
        words = {}
        for key, known, code in _WORDS:
            text = tag.attributes.get(key)
            if text is None:
                self.findings.add("S01", f"<step> has no {key}{_meant(tag, key)}", tag.line, *here)
            elif key == "type" and text == "ra":
                self.findings.add("S03", "type=\"ra\" is reserved and does nothing", tag.line, *here)
            elif text not in known:
                self.findings.add(code, f"{key}={text[:20]!r}; there are {', '.join(sorted(known))}", tag.line, *here)
            words[key] = _spelled(text or "", known) or ("cpy" if key == "type" else "o")
        return Step(cast(StepType, words["type"]), cast(BufferName, words["srcbuf"]), numbers["srcoff"],
                    cast(BufferName, words["dstbuf"]), numbers["dstoff"], numbers["cnt"], numbers["depid"],
                    numbers["deps"], numbers["hasdep"])


def _spelled(text: str, known: Collection[str]) -> str | None:
    """The one of `known` that `text` is but for capitals, hyphens and underscores."""
    if text in known:
        return text
    plain = re.sub("[-_]", "", text).lower()
    return next((word for word in known if re.sub("[-_]", "", word).lower() == plain), None)


def _meant(tag: Tag, key: str) -> str:
    """A misspelt attribute that may be the one that is missing."""
    near = difflib.get_close_matches(key.lower(), [name.lower() for name in tag.attributes], 1, 0.75)
    known = {"id", *_STEP_KEYS, *_KEYS}
    meant = [name for name in tag.attributes if name.lower() in near and name not in known]
    return f"; is {meant[0]}= meant to be it?" if meant else ""


def respelled(text: str) -> str:
    """The file with proto, coll and step types as the runtimes spell them, where only capitals, hyphens and underscores
    differ."""
    known = {"proto": get_args(Protocol), "coll": _COLLECTIVES, "type": _STEP_TYPES}
    return re.sub(
        r'\b(proto|coll|type)="([^"]{1,30})"',
        lambda match: f'{match[1]}="{_spelled(match[2], known[match[1]]) or match[2]}"',
        text,
    )


_KEYS = ("name", "proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace", "outofplace", "minBytes",
         "maxBytes", "send", "recv", "chan", "i_chunks", "o_chunks", "s_chunks")
_WORDS = (("type", _STEP_TYPES, "S02"), ("srcbuf", _BUFFERS, "S04"), ("dstbuf", _BUFFERS, "S04"))
_NUMBERS = ("srcoff", "dstoff", "cnt", "depid", "deps", "hasdep")
_PLAIN = re.compile("0|-?[1-9][0-9]{0,8}")
"""A decimal number as it should be written."""
