"""What can go wrong while a collective runs, and how it is said: where each rank stands, who waits for whom, and why.

A rank that fails, or that waits longer than the timeout, raises the alarm on the board; every rank then writes down
where it stands (a helper thread does, so a rank that computes elsewhere answers too) and `diagnose` reads it
all. A rank that does not answer is dead or stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from latecomer.schedules.errors import LatecomerError


class CollectiveFailed(LatecomerError):
    """A collective could not end. The message has a line for each rank, and the root of the wait.

    The process group is of no more use, and its own shutdown may hang: end the process (`os._exit`).
    `speaker` is the rank that says it where all ranks could; None: each for itself.
    """

    exit_code = 1
    speaker: int | None = None


class PlanMismatch(CollectiveFailed):
    """Ranks hold different plans, or call with different sizes, types or operations."""


class PeerLost(Exception):
    """A transport's word that the connection to `peer` is gone; the executor makes a `CollectiveFailed` of it."""

    def __init__(self, peer: int, reason: str) -> None:
        super().__init__(f"connection to rank {peer} lost: {reason}")
        self.peer, self.reason = peer, reason


class Status(NamedTuple):
    """Where a rank stands. `call` counts its collectives from 1; `waits` are the peers of its unfinished steps."""

    call: int
    state: str
    signature: str
    done: int
    total: int
    step: str
    waits: tuple[int, ...]
    lost: tuple[int, ...] = ()

    def line(self) -> str:
        """For people."""
        if self.state != "running":
            return f"not in this collective: {self.state}"
        text = f"{self.done} of {self.total} steps done, stands at: {self.step}"
        return text + (f"; waits for rank {', '.join(map(str, self.waits))}" if self.waits else "")


def idle(call: int) -> Status:
    """A rank outside of collectives, which has ended `call` of them."""
    return Status(call, f"busy elsewhere after ending {call} collectives", "", 0, 0, "", ())


def diagnose(statuses: Mapping[int, Status], ranks: int, call: int, reason: str) -> str:
    """The message of a `CollectiveFailed`: the reason, a line per rank, the root of the wait."""
    lines = [f"collective {call} ended: {reason}"]
    for rank in range(ranks):
        status = statuses.get(rank)
        lines.append(f"  rank {rank}: " + (status.line() if status else "does not answer: dead, or stopped"))
    lines.append(f"root of the wait: {_root(statuses, ranks, call)}")
    return "\n".join(lines)


def _root(statuses: Mapping[int, Status], ranks: int, call: int) -> str:
    silent = [rank for rank in range(ranks) if rank not in statuses]
    if silent:
        return f"{_ranks(silent)} dead or stopped; the others cannot go on"
    different = disagreement({rank: s for rank, s in statuses.items() if s.state == "running" and s.call == call})
    if different:
        return different
    lost = sorted({peer for status in statuses.values() for peer in status.lost})
    if lost:
        return f"{_ranks(lost)}: the connection was closed"
    absent = [rank for rank, s in statuses.items() if s.call < call and s.state != "running"]
    if absent:
        return f"{_ranks(sorted(absent))} late: has not called collective {call} yet"
    behind = [rank for rank, s in statuses.items() if s.call < call]
    if behind:
        return f"{_ranks(sorted(behind))} still in an earlier collective"
    return _cycle(statuses)


def _cycle(statuses: Mapping[int, Status]) -> str:
    """Follow the waits from some rank until one that waits for nobody, or until they close."""
    waiting = [rank for rank, s in sorted(statuses.items()) if s.waits]
    if not waiting:
        return "nobody waits: the timeout is shorter than the collective takes"
    seen: list[int] = [waiting[0]]
    while True:
        waits = statuses[seen[-1]].waits
        if not waits:
            return f"rank {seen[-1]}, which waits for nobody: it is slow"
        if waits[0] in seen:
            around = " → ".join(map(str, [*seen[seen.index(waits[0]) :], waits[0]]))
            return f"ranks wait for each other: {around} (a slow network, or messages lost)"
        seen.append(waits[0])


def disagreement(statuses: Mapping[int, Status]) -> str | None:
    """What the running ranks do not agree on, or None."""
    by_signature: dict[str, list[int]] = {}
    for rank, status in sorted(statuses.items()):
        by_signature.setdefault(status.signature, []).append(rank)
    if len(by_signature) < 2:
        return None
    said = "; ".join(f"{_ranks(who)}: {what}" for what, who in by_signature.items())
    return f"the ranks disagree on what is reduced: {said}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def to_text(status: Status) -> list[Any]:
    """As JSON can hold it."""
    return list(status)


def from_text(fields: Sequence[Any]) -> Status:
    """What `to_text` wrote."""
    call, state, signature, done, total, step, waits, lost = fields
    return Status(call, state, signature, done, total, step, tuple(waits), tuple(lost))
