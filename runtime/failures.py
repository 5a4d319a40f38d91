"""What can go wrong while a collective runs, and how it is said: where each rank stands, who waits for whom, and why.

A rank that fails, or that waits longer than the timeout, raises the alarm on the board; every rank then writes down
where it stands (a helper thread does, so a rank that computes elsewhere answers too), `find_root` follows the waits
to their end, and `diagnose` says it all. A rank that does not answer is dead or stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from latecomer.schedules.errors import LatecomerError

RUNNING: Final = "running"
CLOSED: Final = "closed its executor"
"""States of a rank; any other is said in words."""

class CollectiveFailed(LatecomerError):
    """A collective could not end. The message begins with the root of the wait, and has a line for each rank.

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


AWAY_S: Final = 2.0
"""A rank in a collective that has not looked for messages for so long is busy with something else."""


class Status(NamedTuple):
    """Where a rank stands. `call` counts its collectives from 1; `waits` are the peers of its unfinished steps.

    `lost`: peers whose connection broke; `gave_up`: the error that ended its call; `away_s`: since when it has not
    looked for messages.
    """

    call: int
    state: str
    signature: str
    done: int
    total: int
    step: str
    waits: tuple[int, ...]
    lost: tuple[int, ...] = ()
    gave_up: str = ""
    away_s: float = 0.0

    def line(self) -> str:
        """For people."""
        if self.gave_up:
            return f"gave up: {self.gave_up}"
        if self.state != RUNNING:
            return f"not in this collective: {self.state}"
        text = f"{self.done} of {self.total} steps done, stands at: {self.step}"
        text += f"; waits for rank {', '.join(map(str, self.waits))}" if self.waits else ""
        return text + (f"; has not looked for messages for {self.away_s:.0f} s" if self.away_s > AWAY_S else "")


def idle(call: int, *, closed: bool = False) -> Status:
    """A rank outside of collectives, which has ended `call` of them."""
    what = CLOSED if closed else "busy elsewhere"
    return Status(call, f"{what} after ending {call} collectives", "", 0, 0, "", ())


def diagnose(statuses: Mapping[int, Status], ranks: int, call: int, root: str, reason: str) -> str:
    """The message of a `CollectiveFailed`: the root of the wait, what was noticed first, a line per rank."""
    lines = [f"collective {call} ended: {root}"]
    if reason not in root:
        lines.append(f"  noticed first: {reason}")
    for rank in range(ranks):
        status = statuses.get(rank)
        lines.append(f"  rank {rank}: " + (status.line() if status else "does not answer"))
    return "\n".join(lines)


def out_of_reach(rank: int, own: Status) -> str:
    """The root as far as `rank` knows, where the board does not answer, so that nothing is known of the others."""
    waits = f"; rank {rank} waits for {_ranks(own.waits)}" if own.waits else ""
    return f"the store does not answer: the process that hosts it may be dead or stopped{waits}"


def find_root(statuses: Mapping[int, Status], ranks: int, call: int, reason: str) -> str:
    """Who is at the end of the chain of waits, as far as the ranks that answered know; or `reason`."""
    gave_up = {rank: status.gave_up for rank, status in sorted(statuses.items()) if status.gave_up}
    if gave_up:
        return "; ".join(f"rank {rank} gave up: {why}" for rank, why in gave_up.items())
    running = {rank: s for rank, s in sorted(statuses.items()) if s.state == RUNNING}
    different = disagreement({rank: s for rank, s in running.items() if s.call == call})
    if different:
        return different
    silent = [rank for rank in range(ranks) if rank not in statuses]
    if silent:
        return f"{_ranks(silent)} dead or stopped; the others cannot go on"
    lost = sorted({peer for status in statuses.values() for peer in status.lost})
    if lost:
        return f"{_ranks(lost)}: the connection was closed"
    absent = [rank for rank, s in sorted(statuses.items()) if s.call < call and s.state != RUNNING]
    closed = [rank for rank in absent if statuses[rank].state.startswith(CLOSED)]
    if closed:
        return f"{_ranks(closed)} closed the executor before collective {call}"
    if absent:
        return f"{_ranks(absent)} late: has not called collective {call} yet"
    behind = [rank for rank, s in running.items() if s.call < call]
    if behind:
        return f"{_ranks(behind)} still in an earlier collective"
    away = [rank for rank, s in running.items() if s.away_s > AWAY_S]
    if away:
        longest = max(running[rank].away_s for rank in away)
        return f"{_ranks(away)} busy with something else, without a look for messages for {longest:.0f} s"
    return _end_of_waits(statuses) if running else reason


def _end_of_waits(statuses: Mapping[int, Status]) -> str:
    """The ranks that all waits lead to: one that waits for nobody, or some that wait for each other."""
    reach = {rank: _reachable(statuses, rank) for rank in sorted(statuses)}
    waited_for = {peer for found in reach.values() for peer in found}
    if not waited_for:
        return "nobody waits: the timeout is shorter than the collective takes"
    ends = [rank for rank in sorted(waited_for) if all(rank in reach[peer] for peer in reach[rank])]
    free = [rank for rank in ends if not statuses[rank].waits]
    ended = [rank for rank in free if statuses[rank].state != RUNNING]
    if ended:
        return f"{_ranks(ended)} done, and others still wait for messages from there: they were lost"
    if free:
        return f"{_ranks(free)} slow: others wait for it, and it waits for nobody"
    around = [ends[0]]
    while around[-1] not in around[:-1]:
        around.append(statuses[around[-1]].waits[0])
    around = around[around.index(around[-1]) :]
    return f"ranks wait for each other: {' → '.join(map(str, around))} (a slow network, or messages lost)"


def _reachable(statuses: Mapping[int, Status], rank: int) -> set[int]:
    """The ranks that `rank` waits for, directly or through others."""
    found: set[int] = set()
    open_ = [rank]
    while open_:
        more = set(statuses[open_.pop()].waits) - found
        found |= more
        open_ += more
    return found


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
    call, state, signature, done, total, step, waits, lost, gave_up, away_s = fields
    return Status(call, state, signature, done, total, step, tuple(waits), tuple(lost), gave_up, away_s)
