"""The engine for schedules that use several peers at once: an event queue.

A free link takes the first, by priority, of the messages that are ready for it. Times are whole ticks (10^-12 µs, or
coarser in a long run), rounded up, so that messages which should end together do, and priority decides between them.
O((rows + messages) · log messages).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.engines.case import REASONS, Case, Timeline
from latecomer.schedules.locations import Locations

MOST_TICKS = 10**18
"""Of one run: well inside 64 bits."""
FINEST_TICKS_PER_US = 10**12
_ENDS, _LEFT, _READY = range(3)  # events of one moment, in the order in which they must be seen
_ARRIVAL, _DATA, _PORT = range(len(REASONS))


def run(case: Case) -> Timeline:
    """When each message starts and ends, and each accumulator last changes."""
    return _Run(case).run()


@dataclass(frozen=True)
class _Writes:
    """All writes of one round into one location land together: a *group*, numbered by location, then round.

    Shapes (rows,): `of_row` is the group a row writes; `waits_on` the last group that must have landed before a row may
    read its source (-1: none); `blocks` the group that must not land before the row has read (-1: none).
    Shape (groups,): `follows`, whether the group before is in the same location; `location`.
    """

    of_row: NDArray[np.int64]
    waits_on: NDArray[np.int64]
    blocks: NDArray[np.int64]
    follows: NDArray[np.bool_]
    location: NDArray[np.int64]

    @classmethod
    def of(cls, locations: Locations, round: NDArray[np.int32]) -> _Writes:
        rounds = int(round.max(initial=0)) + 1
        groups, of_row = np.unique(locations.target * rounds + round, return_inverse=True)
        location = groups // rounds
        # A read of round t sees the groups of rounds < t, and holds up those of rounds >= t.
        at = np.searchsorted(groups, locations.source * rounds + round)
        same = np.append(location, -1)
        waits_on = np.where((at > 0) & (same[at - 1] == locations.source), at - 1, -1)
        blocks = np.where(same[at] == locations.source, at, -1)
        return cls(of_row, waits_on, blocks, np.append(False, location[1:] == location[:-1]), location)


class _Run:
    def __init__(self, case: Case) -> None:
        self.case = case
        writes = _Writes.of(case.locations, case.schedule.transfers.round)
        self.writes, count, groups = writes, len(case.messages), len(writes.location)
        of_row = case.messages.of_row
        waiting, blocking = writes.waits_on >= 0, writes.blocks >= 0
        self.rows_of = _buckets(of_row, np.arange(len(of_row)), count)
        self.waiters = _buckets(writes.waits_on[waiting], of_row[waiting], groups)
        self.pending = np.bincount(of_row[waiting], minlength=count).tolist()
        missing = np.bincount(writes.of_row, minlength=groups) + np.bincount(writes.blocks[blocking], minlength=groups)
        self.missing = (missing + writes.follows).tolist()
        self.write_group, self.read_group = writes.of_row.tolist(), writes.blocks.tolist()
        self.followed = np.append(writes.follows[1:], False).tolist()
        self.scale = _ticks_per_us(case)
        ticks = self._ticks(case.service_us)
        self.hops = [
            [(link, t) for link, t in zip(route, times, strict=True) if link >= 0]
            for route, times in zip(case.route.tolist(), ticks.tolist(), strict=True)
        ]
        self.earliest = self._ticks(case.earliest_us).tolist()
        self.round_ticks = int(self._ticks(np.array([case.round_us]))[0])
        began = min(self.earliest, default=0)
        self.rounds, self.senders = case.messages.round.tolist(), case.src.tolist()
        links = len(case.topology.links)
        self.free, self.user = [began] * links, [-1] * links
        self.queues: list[list[int]] = [[] for _ in range(links)]
        self.opened: dict[tuple[int, int], int] = {}
        self.events: list[tuple[int, int, int]] = []
        self.start, self.end, self.after, self.reason = ([0] * count, [0] * count, [-1] * count, [_ARRIVAL] * count)
        self.landed, self.began = [began] * groups, began

    def run(self) -> Timeline:
        for message, pending in enumerate(self.pending):
            if not pending:
                self._becomes_ready(message, self.began, -1)
        while self.events:
            now = self.events[0][0]
            touched = set()
            while self.events and self.events[0][0] == now:
                _, kind, number = heapq.heappop(self.events)
                if kind == _ENDS:
                    self._ends(number, now)
                    continue
                touched.add(self.hops[number][0][0])
                if kind == _READY:
                    heapq.heappush(self.queues[self.hops[number][0][0]], number)
                else:
                    self._has_left(number, now)
            for link in sorted(touched):
                if self.queues[link] and self.free[link] <= now:
                    self._start(heapq.heappop(self.queues[link]), now)
        return self._timeline()

    def _becomes_ready(self, message: int, now: int, because: int) -> None:
        if now > self.earliest[message]:
            self.after[message], self.reason[message] = because, _DATA
        heapq.heappush(self.events, (max(now, self.earliest[message]), _READY, message))

    def _start(self, message: int, now: int) -> None:
        (link, ticks), *further = self.hops[message]
        if self.free[link] == now and self.user[link] >= 0:  # it was waiting for the message that just passed
            self.after[message], self.reason[message] = self.user[link], _PORT
        begin = self.opened.setdefault((self.senders[message], self.rounds[message]), now + self.round_ticks)
        begin = max(begin, now)
        self.start[message], end = now, begin + ticks
        self.free[link], self.user[link] = end, message
        heapq.heappush(self.events, (end, _LEFT, message))
        for link, ticks in further:
            entered = max(self.free[link], begin)
            if entered + ticks > end and entered > begin:
                self.after[message], self.reason[message] = self.user[link], _PORT
            self.free[link], self.user[link] = entered + ticks, message
            end = max(end, entered + ticks)
        self.end[message] = end
        heapq.heappush(self.events, (end, _ENDS, message))

    def _ends(self, message: int, now: int) -> None:
        for row in self.rows_of[message]:
            self._one_less(self.write_group[row], now, message)

    def _has_left(self, message: int, now: int) -> None:
        """The first link has passed the message: its source slots have been read."""
        for row in self.rows_of[message]:
            if self.read_group[row] >= 0:
                self._one_less(self.read_group[row], now, message)

    def _one_less(self, group: int, now: int, message: int) -> None:
        """`group` waits for one event less; when for none, it lands, and so may the group after it."""
        self.missing[group] -= 1
        while not self.missing[group]:
            self.landed[group] = now
            for waiter in self.waiters[group]:
                self.pending[waiter] -= 1
                if not self.pending[waiter]:
                    self._becomes_ready(waiter, now, message)
            if not self.followed[group]:
                return
            group += 1
            self.missing[group] -= 1

    def _ticks(self, time_us: NDArray[np.float64]) -> NDArray[np.int64]:
        """Rounded up, so that nothing is ever earlier than its exact time (but for the last digits of a float)."""
        return np.ceil(np.round(time_us * self.scale, 3)).astype(np.int64)

    def _timeline(self) -> Timeline:
        landed = np.full(len(self.case.locations), self.began, dtype=np.int64)
        np.maximum.at(landed, self.writes.location, np.array(self.landed, dtype=np.int64))
        accumulators = self.case.locations.ranks * self.case.locations.chunks
        start, end = (np.array(times, dtype=np.float64) / self.scale for times in (self.start, self.end))
        return Timeline(
            start, end, np.array(self.after), np.array(self.reason, dtype=np.int8), landed[:accumulators] / self.scale
        )


def _ticks_per_us(case: Case) -> int:
    """As fine as 64 bits allow for all that may happen one after another, in powers of ten."""
    messages = len(case.messages)
    longest_us = np.abs(case.earliest_us).max(initial=0.0) + case.service_us.sum() + case.round_us * messages
    return int(min(FINEST_TICKS_PER_US, 10 ** max(0, int(np.log10(MOST_TICKS / max(longest_us, 1e-6))))))


def _buckets(key: NDArray[np.int64], value: NDArray[np.int64], count: int) -> list[list[int]]:
    """The values of each key 0 … count-1, in order."""
    order = np.argsort(key, kind="stable")
    edges = np.searchsorted(key[order], np.arange(count + 1)).tolist()
    values = value[order].tolist()
    return [values[first:last] for first, last in pairwise(edges)]
