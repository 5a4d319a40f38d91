"""The engine for one-port schedules: round after round in array operations, each port in order of rounds.

A port carries at most one message a round, so its order is fixed and all messages of a round can be served at once.
O(rows) numbers moved, in some tens of array operations a round.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.engines.case import REASONS, Case, Timeline, Times


def run(case: Case) -> Timeline:
    """When each message starts and ends, and each accumulator last changes."""
    return _Run(case).run()


class _Run:
    def __init__(self, case: Case) -> None:
        self.case, topology = case, case.topology
        self.joint = topology.ports == "exclusive"
        count, links = len(case.messages), len(topology.links)
        self.resources, self.service_us = case.route, case.service_us
        if self.joint:  # the whole way is held from start to end, and the two ports with it
            ports = np.stack([links + case.src, links + topology.ranks + case.dst], axis=1)
            self.resources = np.concatenate([ports, case.route], axis=1)
            self.service_us = np.repeat(case.whole_us[:, None], self.resources.shape[1], axis=1)
        self.start_us, self.end_us = np.zeros(count), np.zeros(count)
        self.after, self.reason = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int8)
        # One entry more than there are resources: the padding -1 of short routes, never busy.
        self.free_us = np.full(links + 2 * topology.ranks + 1, -np.inf)
        self.last_user = np.full(len(self.free_us), -1, dtype=np.int64)
        self.landed_us = np.full(len(case.locations), -np.inf)
        self.landed_by = np.full(len(case.locations), -1, dtype=np.int64)
        self.left_us, self.read_us = np.zeros(count), np.full(len(case.locations), -np.inf)
        self.new_round_us = np.where(_first_of_round(case), case.round_us, 0.0)

    def run(self) -> Timeline:
        starts = self.case.schedule.transfers.round_starts()
        batches = np.searchsorted(self.case.messages.round, np.arange(len(starts)))
        for number in range(len(starts) - 1):
            batch = np.arange(batches[number], batches[number + 1])
            if len(batch):
                self._round(slice(int(starts[number]), int(starts[number + 1])), batch)
        accumulators = self.case.locations.ranks * self.case.locations.chunks
        return Timeline(self.start_us, self.end_us, self.after, self.reason, self.landed_us[:accumulators])

    def _round(self, rows: slice, batch: NDArray[np.int64]) -> None:
        source, target = self.case.locations.source[rows], self.case.locations.target[rows]
        of_row = self.case.messages.of_row[rows]
        ready, ready_by = self._data(source, of_row, batch)
        for wave in _waves(self.resources[batch]):
            self._serve(batch[wave], ready[wave], ready_by[wave])
        end = self.end_us[of_row]
        np.maximum.at(self.read_us, source, self.left_us[of_row])  # read when the first link has passed it
        landing = np.maximum.reduce([end, self.landed_us[target], self.read_us[target]])
        later = landing >= self.landed_us[target]
        np.maximum.at(self.landed_us, target, landing)
        self.landed_by[target[later]] = of_row[later]

    def _data(
        self, source: NDArray[np.int64], of_row: NDArray[np.int64], batch: NDArray[np.int64]
    ) -> tuple[Times, NDArray[np.int64]]:
        """When the data of each message of the batch has landed, and which message brought the last of it."""
        ready, ready_by = np.full(len(batch), -np.inf), np.full(len(batch), -1, dtype=np.int64)
        place = of_row - batch[0]
        np.maximum.at(ready, place, self.landed_us[source])
        decisive = self.landed_us[source] >= ready[place]
        ready_by[place[decisive]] = self.landed_by[source[decisive]]
        return ready, ready_by

    def _serve(self, m: NDArray[np.int64], ready: Times, ready_by: NDArray[np.int64]) -> None:
        """Messages `m`, no two of which share a resource, take their turn on every one they need."""
        resources, service = self.resources[m], self.service_us[m]
        free, user = self.free_us[resources], self.last_user[resources]
        rows = np.arange(len(m))
        gate = free.argmax(axis=1) if self.joint else np.zeros(len(m), dtype=np.int64)
        causes = np.stack([self.case.earliest_us[m], ready, free[rows, gate]])
        begin, why = causes.max(axis=0), causes.argmax(axis=0).astype(np.int8)
        after = np.choose(why, [np.full(len(m), -1), ready_by, user[rows, gate]])
        first = begin + self.new_round_us[m]
        if self.joint:
            passed = np.repeat((first + service[:, 0])[:, None], resources.shape[1], axis=1)
        else:
            passed = np.maximum(free, first[:, None]) + service
        end = passed.max(axis=1)
        held_up = end > first + service.max(axis=1) * (1 + 1e-9)
        self.after[m] = np.where(held_up, user[rows, passed.argmax(axis=1)], after)
        self.reason[m] = np.where(held_up, REASONS.index("port"), why)
        self.start_us[m], self.end_us[m], self.left_us[m] = begin, end, passed[:, 0]
        real = resources >= 0
        self.free_us[resources[real]] = passed[real]
        self.last_user[resources[real]] = np.broadcast_to(m[:, None], resources.shape)[real]


def _first_of_round(case: Case) -> NDArray[np.bool_]:
    """Shape (messages,): is it the first that its sender sends in its round?"""
    key = case.messages.round.astype(np.int64) * case.topology.ranks + case.src
    first = np.zeros(len(key), dtype=bool)
    first[np.unique(key, return_index=True)[1]] = True
    return first


def _waves(resources: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Indices of messages, split so that none share a resource within a wave and each keeps its order."""
    used = resources[resources >= 0]
    if len(np.unique(used)) == len(used):
        yield np.arange(len(resources))
        return
    last: dict[int, int] = {}
    wave_of = np.empty(len(resources), dtype=np.int64)
    for message, needed in enumerate(resources.tolist()):
        wave = 1 + max(last.get(r, -1) for r in needed if r >= 0)
        wave_of[message] = wave
        last.update((r, wave) for r in needed if r >= 0)
    order = np.argsort(wave_of, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(wave_of[order])) + 1)
