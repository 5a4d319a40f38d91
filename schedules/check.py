"""`check`: does a schedule compute its collective? The one judge of schedules.

It replays the rounds on sets: what each slot holds is the set of ranks whose contributions are summed there.
A reduction must join disjoint sets, so a set can never stand for a contribution that is there twice, and the final
sets prove that every contribution is in every result exactly once. The semantics of rounds (see
`latecomer.schedules.schedule`) make the values independent of timing, so one replay covers every order of
events that those semantics allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.bounds import schedule_round_bound
from latecomer.schedules.errors import IncorrectSchedule
from latecomer.schedules.locations import Locations
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.transfers import ACCUMULATOR, Transfers

Sets = NDArray[np.uint64]
"""Shape (locations, words): bit r of a row is set when rank r's contribution is in that sum."""


@dataclass(frozen=True)
class CheckReport:
    """What was proven. `arrival_points` counts the branches checked (1 for an ordinary schedule)."""

    ranks: int
    chunks: int
    rounds: int
    transfers: int
    arrival_points: int = 1


def check(schedule: Schedule) -> CheckReport:
    """Prove that `schedule` computes its collective under every order its semantics allow.

    A schedule with branches is proven for every arrival point. Raises `IncorrectSchedule` with the first
    round, rank and chunk where something is wrong.

    O(rows · ranks / 64) time and O(ranks² · chunks / 64) memory, for each arrival point.
    """
    if not schedule.branches:
        _check_one(schedule)
        _certificate_agrees(schedule)
    for branch in schedule.branches:
        try:
            _check_one(schedule.resolve(branch.prework_rounds))
        except IncorrectSchedule as error:
            raise IncorrectSchedule(f"after {branch.prework_rounds} pre-work rounds: {error}") from error
    rows = len(schedule.transfers) + sum(len(b.transfers) for b in schedule.branches)
    return CheckReport(schedule.ranks, len(schedule.chunks), schedule.rounds, rows, max(1, len(schedule.branches)))


def _certificate_agrees(schedule: Schedule) -> None:
    """What a certificate says of the schedule alone; its times speak of a topology, and are not looked at."""
    certificate = schedule.certificate
    if certificate is None:
        return
    bound = schedule_round_bound(schedule) if schedule.late_roles else None
    if (certificate.rounds, certificate.bound_rounds) != (schedule.rounds, bound):
        raise IncorrectSchedule(
            f"the certificate says {certificate.rounds} rounds, bound {certificate.bound_rounds}; "
            f"it is {schedule.rounds}, bound {bound}"
        )
    if certificate.proof == "round-optimal" and schedule.rounds != bound:
        raise IncorrectSchedule("the certificate claims the least number of rounds, which the schedule does not have")


def _check_one(schedule: Schedule) -> None:
    moves = schedule.transfers
    _no_self_sends(schedule, moves)
    if schedule.ports == "exclusive":
        _one_port(schedule, moves)
    _released(schedule, moves)
    _patterns_expand(schedule)
    _Replay(schedule).run()


def _fail(schedule: Schedule, row: int, message: str, *, at: str = "dst") -> IncorrectSchedule:
    moves = schedule.transfers
    role = int(getattr(moves, at)[row])
    return IncorrectSchedule(
        message, round=int(moves.round[row]), rank=schedule.binding[role], chunk=int(moves.chunk[row])
    )


def _no_self_sends(schedule: Schedule, moves: Transfers) -> None:
    selfish = np.flatnonzero((moves.src == moves.dst) & (moves.src_slot == moves.dst_slot))
    if len(selfish):
        raise _fail(schedule, int(selfish[0]), "a transfer from a slot to itself")


def _one_port(schedule: Schedule, moves: Transfers) -> None:
    """At most one peer to send to and one to receive from, per rank and round."""
    travels = moves.src != moves.dst
    for port, peer, verb in ((moves.src, moves.dst, "sends to"), (moves.dst, moves.src, "receives from")):
        key = moves.round.astype(np.int64) * schedule.ranks + port
        order = np.lexsort((peer, key))
        order = order[travels[order]]
        clash = np.flatnonzero((np.diff(key[order]) == 0) & (np.diff(peer[order]) != 0))
        if len(clash):
            first, second = (int(order[clash[0] + i]) for i in (0, 1))
            one, two = (schedule.binding[int(peer[row])] for row in (first, second))
            at = "src" if port is moves.src else "dst"
            message = f"{verb} ranks {one} and {two} in one round, but its port is exclusive"
            raise _fail(schedule, second, message, at=at)


def _released(schedule: Schedule, moves: Transfers) -> None:
    """A rank takes part only in phases of its own stage or later."""
    stage = np.array([phase.stage for phase in schedule.phases])[moves.phase]
    stages = np.array(schedule.stages)
    for at in ("src", "dst"):
        early = np.flatnonzero(stages[getattr(moves, at)] > stage)
        if len(early):
            row = int(early[0])
            kind = schedule.phases[int(moves.phase[row])].kind
            raise _fail(schedule, row, f"takes part in the {kind} before its arrival allows", at=at)


def _patterns_expand(schedule: Schedule) -> None:
    """Every pattern equals some of the rows, as a multiset."""
    if not schedule.patterns:
        return
    rows = _row_numbers(schedule, schedule.transfers)
    for number, pattern in enumerate(schedule.patterns):
        claimed = _row_numbers(schedule, pattern.expand())
        kinds, count = np.unique(claimed, return_counts=True)
        found = np.searchsorted(rows, kinds, side="right") - np.searchsorted(rows, kinds)
        if np.any(found < count):
            raise IncorrectSchedule(
                f"pattern {number} (period {pattern.period}, rounds {pattern.first_round} … "
                f"{pattern.first_round + pattern.rounds - 1}) is not what the transfers do"
            )


def _row_numbers(schedule: Schedule, moves: Transfers) -> NDArray[np.int64]:
    """Each row between accumulators as one number, sorted."""
    number = moves.round.astype(np.int64)
    digits = (
        (moves.src, schedule.ranks),
        (moves.dst, schedule.ranks),
        (moves.chunk, len(schedule.chunks)),
        (moves.reduce, 2),
        (moves.phase, len(schedule.phases)),
    )
    for digit, base in digits:
        number = number * base + digit
    return np.sort(number[(moves.src_slot == ACCUMULATOR) & (moves.dst_slot == ACCUMULATOR)])


class _Replay:
    """The rounds, replayed on sets of contributions."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.locations = Locations.of(schedule)
        self.held = _initial(schedule, len(self.locations))
        # A value made by a phase of a later stage cannot be waited for by an earlier stage.
        self.made_in_stage = np.zeros(len(self.locations), dtype=np.int64)
        self.stage = np.array([phase.stage for phase in schedule.phases])[schedule.transfers.phase]

    def run(self) -> None:
        prework = self.stage < self.schedule.last_stage
        ends = int(np.flatnonzero(prework)[-1]) + 1 if prework.any() else 0
        for _, rows in self.schedule.transfers.by_round():
            self._round(rows)
            if rows.stop == ends and prework[:ends].all():
                self._owners_hold_partial_sums(prework)
        self._postcondition()

    def _owners_hold_partial_sums(self, prework: NDArray[np.bool_]) -> None:
        """When the pre-work ends, the owner of every chunk it sums has the sum over all who were there."""
        schedule = self.schedule
        there = np.array(schedule.stages) < schedule.last_stage
        wanted = np.bitwise_or.reduce(_singletons(np.flatnonzero(there), schedule.ranks), axis=0)
        summed = prework & (schedule.transfers.reduce == 1)
        for chunk in np.unique(schedule.transfers.chunk[summed]).tolist():
            owner = schedule.chunks.owners[chunk]
            for role in [owner] if owner >= 0 else np.flatnonzero(there).tolist():
                missing = wanted & ~self.held[role * len(schedule.chunks) + chunk]
                if missing.any():
                    raise IncorrectSchedule(
                        f"owns the chunk, but lacks the contribution of {self._ranks(missing)} when the pre-work ends",
                        rank=schedule.binding[role],
                        chunk=chunk,
                    )

    def _round(self, rows: slice) -> None:
        source, target = self.locations.source[rows], self.locations.target[rows]
        reduce = self.schedule.transfers.reduce[rows] == 1
        values = self.held[source]
        self._sends_something(rows, values)
        self._stages_in_order(rows, source, target)
        waves = _waves(target)
        if len(waves) > 1:
            self._copies_alone(rows, np.isin(target, target[waves[1]]) & ~reduce)
        for wave in waves:
            into, sums, adds = target[wave], values[wave], reduce[wave]
            old = self.held[into]
            self._disjoint(rows, wave, old & sums, adds)
            self._loses_nothing(rows, wave, old & ~sums, into, adds)
            self.held[into] = np.where(adds[:, None], old | sums, sums)

    def _sends_something(self, rows: slice, values: Sets) -> None:
        empty = np.flatnonzero(~values.any(axis=1))
        if len(empty):
            slot = int(self.schedule.transfers.src_slot[rows.start + empty[0]])
            place = f"its relay slot {slot}" if slot else "its accumulator"
            raise _fail(
                self.schedule, rows.start + int(empty[0]), f"sends what it does not hold: {place} is empty", at="src"
            )

    def _stages_in_order(self, rows: slice, source: NDArray[np.int64], target: NDArray[np.int64]) -> None:
        stage = self.stage[rows]
        late = np.flatnonzero(np.maximum(self.made_in_stage[source], self.made_in_stage[target]) > stage)
        if len(late):
            row = rows.start + int(late[0])
            kind = self.schedule.phases[int(self.schedule.transfers.phase[row])].kind
            raise _fail(self.schedule, row, f"a {kind} transfer waits for data of a later arrival", at="src")
        np.maximum.at(self.made_in_stage, target, stage)

    def _copies_alone(self, rows: slice, crowded_copies: NDArray[np.bool_]) -> None:
        bad = np.flatnonzero(crowded_copies)
        if len(bad):
            raise _fail(
                self.schedule, rows.start + int(bad[0]), "is copied over while another transfer of the round writes it"
            )

    def _disjoint(self, rows: slice, wave: NDArray[np.int64], overlap: Sets, adds: NDArray[np.bool_]) -> None:
        bad = np.flatnonzero(overlap.any(axis=1) & adds)
        if len(bad):
            who = self._ranks(overlap[bad[0]])
            raise _fail(
                self.schedule, rows.start + int(wave[bad[0]]), f"the contribution of {who} is added a second time"
            )

    def _loses_nothing(
        self, rows: slice, wave: NDArray[np.int64], lost: Sets, into: NDArray[np.int64], adds: NDArray[np.bool_]
    ) -> None:
        """Overwriting an accumulator with a sum that lacks what it held."""
        accumulator = into < self.schedule.ranks * len(self.schedule.chunks)
        bad = np.flatnonzero(lost.any(axis=1) & ~adds & accumulator)
        if len(bad):
            who = self._ranks(lost[bad[0]])
            raise _fail(
                self.schedule, rows.start + int(wave[bad[0]]), f"the contribution of {who} is overwritten and lost"
            )

    def _postcondition(self) -> None:
        schedule = self.schedule
        chunks = len(schedule.chunks)
        final = self.held[: schedule.ranks * chunks].reshape(schedule.ranks, chunks, -1)
        wanted = _everyone(schedule.ranks)[None, None, :]
        required = np.ones((schedule.ranks, chunks), dtype=bool)
        owners = np.array(schedule.chunks.owners)
        if schedule.collective == "reduce_scatter":
            required = np.arange(schedule.ranks)[:, None] == owners[None, :]
        elif schedule.collective == "allgather":
            wanted = _singletons(owners, schedule.ranks)[None, :, :]
        wrong = np.argwhere(np.any(final != wanted, axis=2) & required)
        if len(wrong):
            role, chunk = (int(x) for x in wrong[0])
            missing = np.broadcast_to(wanted, final.shape)[role, chunk] & ~final[role, chunk]
            raise IncorrectSchedule(
                f"at the end the contribution of {self._ranks(missing)} is missing",
                rank=schedule.binding[role],
                chunk=chunk,
            )

    def _ranks(self, words: NDArray[np.uint64]) -> str:
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        ranks = sorted(self.schedule.binding[int(role)] for role in np.flatnonzero(bits))
        shown = ", ".join(map(str, ranks[:8])) + (f", … ({len(ranks)} in all)" if len(ranks) > 8 else "")
        return ("rank " if len(ranks) == 1 else "ranks ") + shown


def _waves(target: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Row numbers split so that a target occurs once a wave, earlier rows in earlier waves.

    before: [7, 3, 7, 7]   after: [[0, 1], [2], [3]]
    """
    order = np.argsort(target, kind="stable")
    same = np.diff(target[order], prepend=-1) == 0
    if not same.any():
        return [np.arange(len(target))]
    start = np.maximum.accumulate(np.where(same, 0, np.arange(len(target))))
    occurrence = np.empty(len(target), dtype=np.int64)
    occurrence[order] = np.arange(len(target)) - start
    return [np.flatnonzero(occurrence == wave) for wave in range(int(occurrence.max()) + 1)]


def _initial(schedule: Schedule, locations: int) -> Sets:
    """Every accumulator holds its own rank's contribution (AllGather: only the owner's chunks are there)."""
    ranks, chunks = schedule.ranks, len(schedule.chunks)
    held = np.zeros((locations, _words(ranks)), dtype=np.uint64)
    roles = np.repeat(np.arange(ranks), chunks)
    held[: ranks * chunks] = _singletons(roles, ranks)
    if schedule.collective == "allgather":
        held[: ranks * chunks][roles != np.tile(schedule.chunks.owners, ranks)] = 0
    return held


def _words(ranks: int) -> int:
    return (ranks + 63) // 64


def _singletons(roles: NDArray[np.int64], ranks: int) -> Sets:
    sets = np.zeros((len(roles), _words(ranks)), dtype=np.uint64)
    sets[np.arange(len(roles)), roles // 64] = np.uint64(1) << (roles % 64).astype(np.uint64)
    return sets


def _everyone(ranks: int) -> NDArray[np.uint64]:
    bits = np.zeros(_words(ranks) * 64, dtype=np.uint8)
    bits[:ranks] = 1
    return np.packbits(bits, bitorder="little").view(np.uint64)
