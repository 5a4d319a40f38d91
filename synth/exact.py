"""The least number of rounds of a small case, found and proven by CP-SAT: an oracle independent of the constructions.

`completion`: what `algorithms/completion.py` describes, with everything a one-port schedule may do after the arrival:
passing on the straggler's contribution X_c, moving or copying a partial sum P_c to another rank, joining them
anywhere. `allreduce`: all ranks, each taking part from a given round on, from nothing but their own contributions.

Both are one model: for each (rank, chunk, round) the set of contributions in the rank's accumulator. P_c counts as
one contribution in a completion. A message carries its sender's accumulator of one chunk; the receiver adds it if
the sets are disjoint, or replaces its own by it. As any rank can talk to any other, a round only needs as many
senders as receivers of every set of every chunk; a receiver must gain by what it gets, so it never is its own
sender, and the pairs can be chosen afterwards.

Numbers of rounds are tried from below, each proven infeasible before the next. Exponential: meant for about 6 ranks in
`completion`, 4 in `allreduce`. One worker, fixed seed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.chunks import EVERY_EARLY_RANK
from latecomer.schedules.errors import InputError, LimitExceeded
from latecomer.schedules.transfers import Moves, Transfers
from latecomer.synth.algorithms.completion import least_rounds, log2_ceil, require_size

Progress = Callable[[str], None]
Bits = NDArray[np.int64]

NOTHING, PARTIAL, OWN, FULL = 0, 1, 2, 3
"""Accumulators in a completion: no use, P_c, X_c, F_c."""

CONSTRAINTS: Final = (
    "the late rank sends one chunk a round",
    "the late rank receives one chunk a round",
    "an early rank sends one chunk a round",
    "an early rank receives one chunk a round",
    "a rank sends only what it holds",
)

MAX_STATES: Final = 200_000
"""Of rank, chunk, round and set: more than this is beyond any time limit."""


@dataclass(frozen=True)
class Exact:
    """`rounds` is None when nothing was found in time; no schedule has fewer than `bound`.

    `transfers`: round 0 is the first one, phase 0, accumulators only.
    """

    rounds: int | None
    bound: int
    transfers: Transfers | None
    seconds: float

    @property
    def optimal(self) -> bool:
        """Found, and nothing better exists."""
        return self.rounds == self.bound

    def __str__(self) -> str:
        return f"{'found none' if self.rounds is None else f'found {self.rounds}'}, proven ≥ {self.bound}"


@dataclass(frozen=True)
class _Case:
    """`start[r, c]`: the set in an accumulator at first; the goal is `full` everywhere; `ready[r]`: first round."""

    start: Bits
    full: int
    ready: tuple[int, ...]

    @property
    def size(self) -> tuple[int, int]:
        ranks, chunks = self.start.shape
        return ranks, chunks


def completion(
    ranks: int,
    chunks: int,
    *,
    owners: Sequence[int] | None = None,
    time_limit_s: float = 60.0,
    by_search_alone: bool = False,
    progress: Progress | None = None,
) -> Exact:
    """The least rounds after the arrival that complete `chunks` chunks at `ranks` ranks.

    `owners`: the early role that holds each chunk's partial sum, or (the default, for all) `EVERY_EARLY_RANK`. The
    search starts at the bound K + ⌈log2 n⌉ - 1, or, `by_search_alone`, at max(K, ⌈log2 n⌉) to prove it anew.
    """
    case = _completion_case(ranks, chunks, owners)
    bound = max(chunks, log2_ceil(ranks)) if by_search_alone else least_rounds(ranks, chunks)
    return _climb(case, bound, time_limit_s, progress)


def allreduce(
    ranks: int,
    chunks: int,
    *,
    ready: Sequence[int] | None = None,
    time_limit_s: float = 60.0,
    progress: Progress | None = None,
) -> Exact:
    """The least rounds, from the first on, of an AllReduce in which rank r takes part from round `ready[r]` on."""
    require_size(ranks, chunks)
    ready = (0,) * ranks if ready is None else tuple(ready)
    if len(ready) != ranks or min(ready) < 0:
        raise InputError(f"{ranks} ranks need {ranks} rounds of arrival, none negative")
    start = np.repeat(1 << np.arange(ranks)[:, None], chunks, axis=1)
    return _climb(_Case(start, 2**ranks - 1, ready), max(ready) + max(log2_ceil(ranks), 1), time_limit_s, progress)


def why_not(ranks: int, chunks: int, rounds: int, *, owners: Sequence[int] | None = None) -> tuple[str, ...]:
    """Of `CONSTRAINTS`, some that no completion of `rounds` rounds can meet together, and any one fewer can.

    Empty if there is such a completion. What the late rank can do is kept in preference.
    """
    if rounds < 1:
        raise InputError(f"a completion takes at least 1 round, not {rounds}")
    case = _completion_case(ranks, chunks, owners)
    if isinstance(_solve(case, rounds, 600.0, CONSTRAINTS), Transfers):
        return ()
    needed = list(CONSTRAINTS)
    for constraint in reversed(CONSTRAINTS):
        fewer = [c for c in needed if c != constraint]
        if _solve(case, rounds, 600.0, fewer) == "infeasible":
            needed = fewer
    return tuple(needed)


def _completion_case(ranks: int, chunks: int, owners: Sequence[int] | None) -> _Case:
    require_size(ranks, chunks)
    owners = (EVERY_EARLY_RANK,) * chunks if owners is None else tuple(owners)
    if len(owners) != chunks or not all(-1 <= owner < ranks - 1 for owner in owners):
        raise InputError(f"{chunks} chunks need {chunks} owners: roles 0 … {ranks - 2}, or {EVERY_EARLY_RANK} for all")
    start = np.full((ranks, chunks), NOTHING)
    start[-1] = OWN
    for c, owner in enumerate(owners):
        start[slice(ranks - 1) if owner == EVERY_EARLY_RANK else owner, c] = PARTIAL
    return _Case(start, FULL, (0,) * ranks)


def _climb(case: _Case, bound: int, time_limit_s: float, progress: Progress | None) -> Exact:
    """Proofs from below get half of the time; if they stall, the rest goes into finding any schedule."""
    ranks, chunks = case.size
    if ranks * chunks * (bound + 1) * (case.full + 1) > MAX_STATES:
        raise LimitExceeded(
            f"exact: {ranks} ranks and {chunks} chunks are too many for an exhaustive search; "
            "take a construction, such as circulant",
            "MAX_STATES",
        )
    began, say = time.monotonic(), progress or (lambda text: None)
    rounds, share = bound, 0.5
    while (left := time_limit_s * share - (time.monotonic() - began)) > 0:
        say(f"exact: {ranks} ranks, {chunks} chunks: trying {rounds} rounds, proven ≥ {bound}")
        # A schedule that relays nothing is found sooner; that there is none proves nothing.
        answer = _solve(case, rounds, left / 2, CONSTRAINTS, relays=False)
        if not isinstance(answer, Transfers):
            answer = _solve(case, rounds, left / 2, CONSTRAINTS)
        if isinstance(answer, Transfers):
            return Exact(rounds, bound, answer, time.monotonic() - began)
        if answer == "infeasible":
            # Whatever can be done in fewer rounds can be done in more, so this covers all below as well.
            bound = rounds + 1
        elif share == 1:
            break
        else:
            share = 1
        rounds += 1
    return Exact(None, bound, None, time.monotonic() - began)


def _solve(
    case: _Case, rounds: int, limit_s: float, constraints: Sequence[str], *, relays: bool = True
) -> Transfers | str:
    """The transfers, or "infeasible", or "unknown".

    Without `relays`, what is neither complete nor the receiver's missing part is not sent (in a completion).
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    holds, sends, takes = _variables(model, case, rounds)
    _ports(model, case, rounds, sends, takes, constraints)
    for (r, c, t, part), sent in sends.items():
        if CONSTRAINTS[4] in constraints:
            model.add_implication(sent, holds[r, c, t, part])
    for c, t, part in itertools.product(range(case.size[1]), range(rounds), range(1, case.full + 1)):
        group = [(r, c, t, part) for r in range(case.size[0])]
        model.add(sum(sends[key] for key in group if key in sends) == sum(takes[key] for key in group if key in takes))
    if not relays and case.full == FULL:
        for (r, c, t, part), take in takes.items():
            if part != FULL:
                model.add_implication(take, holds[r, c, t, FULL - part])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_time_in_seconds = limit_s
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return _transfers(
            case, {k for k, v in sends.items() if solver.value(v)}, {k for k, v in takes.items() if solver.value(v)}
        )
    return "infeasible" if status == cp_model.INFEASIBLE else "unknown"


def _variables(model: Any, case: _Case, rounds: int) -> tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any]]:
    """(rank, chunk, round, set) → accumulator holds it at the start of the round, is sent in it, is received in it."""
    holds, sends, takes = {}, {}, {}
    for r, c in np.ndindex(case.size):
        sets = range(case.full + 1)
        for t in range(rounds + 1):
            for part in sets:
                holds[r, c, t, part] = model.new_bool_var("")
            model.add_exactly_one(holds[r, c, t, part] for part in sets)
        model.add(holds[r, c, 0, int(case.start[r, c])] == 1)
        model.add(holds[r, c, rounds, case.full] == 1)
        for t in range(case.ready[r], rounds):
            for part in sets[1:]:
                sends[r, c, t, part] = model.new_bool_var("")
                takes[r, c, t, part] = model.new_bool_var("")
        for t, old in itertools.product(range(rounds), sets):
            gained = [takes[r, c, t, part] for part in sets[1:] if (r, c, t, part) in takes]
            model.add(holds[r, c, t + 1, old] == 1).only_enforce_if([holds[r, c, t, old], *(~g for g in gained)])
            for part, take in zip(sets[1:], gained, strict=False):
                # Disjoint sets are added, a larger one replaces; anything else would be no gain, or a double count.
                if old & part == 0 or (old & part == old and part != old):
                    model.add_implication(take, holds[r, c, t + 1, old | part]).only_enforce_if(holds[r, c, t, old])
                else:
                    model.add_bool_or(~take, ~holds[r, c, t, old])
    return holds, sends, takes


def _ports(
    model: Any, case: _Case, rounds: int, sends: dict[Any, Any], takes: dict[Any, Any], constraints: Sequence[str]
) -> None:
    late = case.size[0] - 1
    for r, t in itertools.product(range(case.size[0]), range(rounds)):
        for variables, number in ((sends, 0), (takes, 1)):
            if CONSTRAINTS[number + (0 if r == late else 2)] in constraints:
                model.add_at_most_one(v for (rank, _, u, _), v in variables.items() if (rank, u) == (r, t))
    # Without the port rule a rank may receive several chunks in a round, but each once.
    for r, c, t in itertools.product(*map(range, (*case.size, rounds))):
        model.add_at_most_one(v for (*key, _), v in takes.items() if key == [r, c, t])


def _transfers(case: _Case, sends: set[Any], takes: set[Any]) -> Transfers:
    """Senders and receivers of the same set paired in order of rank."""
    moves, held = Moves(), case.start.copy()
    for t in sorted({key[2] for key in takes}):
        now = held.copy()
        for c, part in sorted({(key[1], key[3]) for key in takes if key[2] == t}):
            senders = sorted(key[0] for key in sends if key[1:] == (c, t, part))
            receivers = sorted(key[0] for key in takes if key[1:] == (c, t, part))
            for src, dst in zip(senders, receivers, strict=True):
                adds = held[dst, c] != NOTHING and not held[dst, c] & part
                moves.move(t, src, dst, c, reduce=int(adds))
                now[dst, c] = held[dst, c] | part if adds else part
        held = now
    return moves.build()
