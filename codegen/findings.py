"""`Finding`: one fault of a program, with where it is and what it does at run time; and the table of all rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

Severity = Literal["error", "warning", "note"]

RUNTIMES = ("msccl", "msccl-executor", "rccl")
_ALL = frozenset(RUNTIMES)
_MS = frozenset({"msccl"})
_EXRC = frozenset({"msccl-executor", "rccl"})
_RC = frozenset({"rccl"})
_NONE: frozenset[str] = frozenset()


class Rule(NamedTuple):
    """What a code stands for: the runtimes it breaks, and how that shows there."""

    title: str
    breaks: frozenset[str]
    outcome: str


_NOT_LOADED = "the file is not loaded; where the directory is scanned, start-up may fail"
_BODY = "the file's body is refused: communicator start-up fails, or the file is skipped"
_IGNORED = "never selected: the call silently runs the built-in algorithm"
_HANG = "hang"
_CORRUPT = "memory outside of the buffers is read or written: wrong results or an illegal access"
_WRONG = "wrong results"
_RACE = "wrong results, depending on timing"

RULES = {
    # Text
    "X01": Rule("tab", _ALL, _NOT_LOADED),
    "X02": Rule("XML declaration or byte order mark", _ALL, _NOT_LOADED),
    "X03": Rule("text after </algo>", _ALL, _NOT_LOADED),
    "X04": Rule("single quotes", _ALL, _NOT_LOADED),
    "X05": Rule("tag over several lines", _ALL, _NOT_LOADED),
    "X06": Rule("blanks round =", _ALL, _NOT_LOADED),
    "X07": Rule("more than 16 attributes", _ALL, "attributes after the 16th are dropped"),
    "X08": Rule("value too long", _ALL, "a 256-byte buffer overruns while the file is read"),
    "X09": Rule("entity in a value", _NONE, "the value is taken as it stands, undecoded"),
    "X10": Rule("attribute given twice", _NONE, "the second value is ignored"),
    "X11": Rule("unknown element", _NONE, "ignored by the runtimes"),
    "X12": Rule("not a number", _ALL, "read as 0"),
    "X13": Rule("number with a leading 0", _NONE, "read as octal"),
    "X14": Rule("number too large", _ALL, "cut to fewer bits: another number"),
    "X15": Rule("name longer than 63 characters", _NONE, "cut to 63 characters"),
    # Root
    "A01": Rule("no name", _MS, _NOT_LOADED),
    "A02": Rule("root attribute missing", _ALL, _NOT_LOADED),
    "A03": Rule("proto not known", _ALL, _NOT_LOADED),
    "A04": Rule("coll not known", _ALL, _NOT_LOADED),
    "A05": Rule("spelling of reduce_scatter", _EXRC, _NOT_LOADED),
    "A06": Rule("spelling of reducescatter", _MS, _NOT_LOADED),
    "A07": Rule("no outofplace", _EXRC, _NOT_LOADED),
    "A08": Rule("no minBytes", _EXRC, _NOT_LOADED),
    "A09": Rule("no maxBytes", _EXRC, _NOT_LOADED),
    "A10": Rule("maxBytes is 0", _MS, _IGNORED),
    "A11": Rule("minBytes above maxBytes", _ALL, _IGNORED),
    "A12": Rule("negative size", _ALL, _IGNORED),
    "A13": Rule("serves neither in-place nor out-of-place calls", _EXRC, _IGNORED),
    "A14": Rule("flag is not 0 or 1", _MS, _IGNORED),
    "A15": Rule("nchannels out of range", _ALL, _BODY),
    "A16": Rule("nchunksperloop below 1", _ALL, "division by zero when a call is matched"),
    "A17": Rule("ngpus below 1", _ALL, _IGNORED),
    "A18": Rule("nthreads not a multiple of 32", _MS, _NOT_LOADED),
    "A19": Rule("collective of one family only", _NONE, "loaded by some runtimes only"),
    "A20": Rule("maxBytes not given", _NONE, "microsoft/msccl serves calls below 128 MiB only"),
    "A21": Rule("nchunksperloop does not divide among the ranks", _ALL, "pieces that overlap: wrong results"),
    # Gpus and buffers
    "G01": Rule("gpu missing", _ALL, "this rank runs an empty program: the others hang"),
    "G02": Rule("gpu given twice", _ALL, "one of the two is ignored"),
    "G03": Rule("gpu id out of range", _ALL, "ignored"),
    "G04": Rule("gpu attribute missing", _ALL, _BODY),
    "G05": Rule("gpu without threadblocks", _ALL, "a grid of no blocks: the launch fails"),
    "G06": Rule("i_chunks does not fit nchunksperloop", _MS, _BODY),
    "G07": Rule("o_chunks does not fit nchunksperloop", _MS, _BODY),
    "G08": Rule("negative chunk count", _ALL, _BODY),
    "G09": Rule("too many elements for one rank", _ALL, _BODY),
    "G10": Rule("buffer longer than the data", _ALL, _CORRUPT),
    # Threadblocks
    "T01": Rule("tb attribute missing", _ALL, _BODY),
    "T02": Rule("tb ids are not 0, 1, 2 …", _ALL, _BODY),
    "T03": Rule("tb id given twice", _ALL, _BODY),
    "T04": Rule("too many threadblocks", _ALL, _BODY),
    "T05": Rule("too many steps", _ALL, _BODY),
    "T06": Rule("peer out of range", _ALL, "connects to a rank that does not exist: crash"),
    "T07": Rule("sends to or receives from itself", _ALL, _BODY),
    "T08": Rule("channel out of range", _ALL, "an array overruns while the file is read"),
    "T09": Rule("channel not below nchannels", _ALL, "the channel is never connected: crash or hang"),
    "T10": Rule("more than 32 connections on one channel", _ALL, _BODY),
    "T11": Rule("two threadblocks on one connection", _ALL, "both use one pair of counters: corruption or hang"),
    "T12": Rule("channels with gaps", _NONE, "channels that do nothing are connected"),
    "T13": Rule("negative channel", _ALL, _BODY),
    "T14": Rule("threadblock without steps", _NONE, "a block that does nothing"),
    # Steps
    "S01": Rule("step attribute missing", _ALL, _BODY),
    "S02": Rule("step type not known", _ALL, _BODY),
    "S03": Rule("step type has no kernel", _ALL, "the threadblock stops there: hang"),
    "S04": Rule("buffer not known", _ALL, _BODY),
    "S05": Rule("s is not 0, 1, 2 …", _ALL, "waits count by position, not by s: hang or race"),
    "S06": Rule("cnt out of range", _ALL, "an index of -1 or past the end of a table"),
    "S07": Rule("offset out of range", _ALL, _CORRUPT),
    "S08": Rule("offset + cnt beyond the buffer", _ALL, _CORRUPT),
    "S09": Rule("sends without a peer", _ALL, _BODY),
    "S10": Rule("receives without a peer", _ALL, _BODY),
    "S11": Rule("fused step, which few RCCL builds run", _RC, "on RCCL the first matching call fails"),
    "S12": Rule("trailing nop", _NONE, "dropped, with its dependency"),
    "S13": Rule("merged re steps of different cnt", _ALL, "the last cnt is used for all: wrong results"),
    "S14": Rule("more than 16 re steps merge", _ALL, "an array on the device overruns"),
    "S15": Rule("writes the send buffer of an out-of-place call", _ALL, "the caller's data changes"),
    # Dependencies
    "D01": Rule("waits for a threadblock that does not exist", _ALL, _HANG),
    "D02": Rule("waits for a step that does not exist", _ALL, _HANG),
    "D03": Rule("waits for a step that never posts", _ALL, _HANG),
    "D04": Rule("waits for a nop", _ALL, _HANG),
    "D05": Rule("waits for its own threadblock", _ALL, "never true if later, useless if earlier"),
    "D06": Rule("depid too large", _ALL, "cut to 8 bits: waits for another threadblock"),
    "D07": Rule("nop chain whose last step has no dependency", _ALL, _BODY),
    "D08": Rule("hasdep is not 0 or 1", _ALL, _BODY),
    "D09": Rule("posts for nobody", _NONE, "costs a fence"),
    "D11": Rule("depid without deps", _NONE, "waits for nobody"),
    "D10": Rule("waits for a step that is posted only by a later one", _NONE, "works, later than meant"),
    # Connections
    "C01": Rule("sends more than is received", _ALL, _HANG),
    "C02": Rule("receives more than is sent", _ALL, _HANG),
    "C03": Rule("a send and its receive have different cnt", _ALL, "wrong results, or a hang once messages are large"),
    "C04": Rule("the two ends use different channels", _ALL, _HANG),
    # Behaviour
    "K01": Rule("deadlock", _ALL, _HANG),
    "K02": Rule("deadlock when messages are large", _ALL, "hang, at large sizes only"),
    "K03": Rule("needs buffered sends", _NONE, "none: fine at the protocol's capacity"),
    "H01": Rule("race", _ALL, _RACE),
    "H02": Rule("race without effect", _NONE, "none: the result is the same in either order"),
    "H03": Rule("ordered only by full queues", _NONE, "none with this protocol; a race with deeper queues"),
    "H04": Rule("overlap within a step", _ALL, "wrong results: a block's threads do not wait for each other"),
    "W01": Rule("wrong result", _ALL, _WRONG),
    "W02": Rule("contribution missing", _ALL, _WRONG),
    "W03": Rule("contribution counted twice", _ALL, _WRONG),
    "W04": Rule("result never written", _ALL, _WRONG),
    # Selection
    "L01": Rule("another number of ranks", _ALL, _IGNORED),
    "L02": Rule("another collective", _ALL, _IGNORED),
    "L03": Rule("message too small", _ALL, _IGNORED),
    "L04": Rule("message too large", _ALL, _IGNORED),
    "L05": Rule("count not divisible by the chunks", _ALL, _IGNORED),
    "L06": Rule("in place or out of place", _ALL, _IGNORED),
    "L07": Rule("a file beside it is in the way", _ALL, "the scan of the directory stops: nothing loads, or a crash"),
    "L08": Rule("another file comes first", _ALL, "the first match runs, and it may be the other"),
    "L10": Rule("not readable", _ALL, _NOT_LOADED),
    "W05": Rule("uses what was never written", _ALL, _WRONG),
}


@dataclass(frozen=True)
class Finding:
    """A fault: `code` (see `RULES`), severity for the target asked about, where, and what happens at run time."""

    code: str
    severity: Severity
    message: str
    outcome: str
    source: str = "program"
    line: int = 0
    gpu: int | None = None
    tb: int | None = None
    step: int | None = None

    def place(self) -> list[tuple[str, int]]:
        """gpu, tb, step, as far as known."""
        names = (("gpu", self.gpu), ("tb", self.tb), ("step", self.step))
        return [(name, value) for name, value in names if value is not None]

    def __str__(self) -> str:
        where = "/".join(f"{name} {value}" for name, value in self.place())
        at = f"{self.source}:{self.line}" if self.line else self.source
        place = f"{at}: {where}: " if where else f"{at}: "
        return f"{place}{self.severity} {self.code}: {self.message}. At run time: {self.outcome}"

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def severity(code: str, target: str | None) -> Severity | None:
    """How bad `code` is on `target` (None: no runtime in mind); None where it does not concern that runtime."""
    breaks = RULES[code].breaks
    if not breaks:
        return "note"
    if target is None:
        return "error" if breaks == _ALL else "warning"
    if target == "portable":
        return "error"
    return "error" if target in breaks else None


MOST_OF_A_KIND = 1000


class Findings:
    """Collects findings while a program is looked at, for one target or none; a thousand of each code at most."""

    def __init__(self, source: str, target: str | None = None) -> None:
        self.source, self.target = source, target
        self.found: list[Finding] = []
        self._counts: Counter[str] = Counter()

    def add(
        self, code: str, message: str, line: int = 0, gpu: int | None = None, tb: int | None = None,
        step: int | None = None, outcome: str | None = None,
    ) -> None:
        """One more, unless it does not concern the target."""
        how_bad = severity(code, self.target)
        self._counts[code] += 1
        if how_bad is not None and self._counts[code] <= MOST_OF_A_KIND:
            outcome = outcome or RULES[code].outcome
            self.found.append(Finding(code, how_bad, message, outcome, self.source, line, gpu, tb, step))

    @property
    def errors(self) -> list[Finding]:
        """Those that are errors."""
        return [finding for finding in self.found if finding.severity == "error"]
