"""`simulate`: when does each message of a schedule start and end on a given topology, and when is every rank done?

The model. A message of b bytes needs every link of its route. A link serves its messages in order of priority (round,
then row): each occupies it for its latency + b / bandwidth. A message starts when

* the data of all its chunks has landed at the source (transfers of earlier rounds),
* both ranks have arrived, and
* its first link is free; a sender pays `round_latency_us` once per round, before its first message.

With `shared` ports the links of a route are a pipeline: each passes the message on while it comes in, so concurrent messages
share a port without blocking one another (a switch that buffers, as TCP flows and NVLink transfers share a port).
With `exclusive` ports a message holds its sender's and receiver's port and all its links together from start to end.
A message that comes in before its slot may be written is kept aside and lands when the slot is free.

So no port ever carries more than its rate, and the modelled time is never below the bounds of
`latecomer.schedules.bounds`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.errors import InputError, NotApplicable
from latecomer.schedules.locations import Locations
from latecomer.schedules.messages import Messages
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.topology import Topology

Times = NDArray[np.float64]

REASONS = ("arrival", "data", "port")
"""Why a message did not start earlier, or took longer than its own time."""


@dataclass(frozen=True)
class Simulation:
    """When everything happened, in µs on the clock of the arrivals.

    Attributes
    ----------
    schedule:
        What ran: the branch taken, and the roles bound, where the arrivals decide those.
    messages:
        The messages, in order of priority.
    start_us, end_us:
        Shape (messages,).
    after, reason:
        Shape (messages,): the message each one waited for last (-1: none) and why, as an index into `REASONS`.
    finish_us:
        Shape (ranks,): when the rank holds its result and has sent all it has to send.
    arrivals_us:
        Shape (ranks,).
    """

    schedule: Schedule
    messages: Messages
    start_us: Times
    end_us: Times
    after: NDArray[np.int64]
    reason: NDArray[np.int8]
    finish_us: Times
    arrivals_us: Times

    @property
    def time_us(self) -> float:
        """From the last arrival to the last rank's finish."""
        return float(self.finish_us.max() - self.arrivals_us.max())

    @property
    def prework_us(self) -> float:
        """From the first arrival to the end of the pre-work; also the delay needed to hide it. 0 where there is none."""
        stages = np.array([phase.stage for phase in self.schedule.phases])[self.messages.phase]
        early = stages < self.schedule.last_stage
        return float(self.end_us[early].max() - self.arrivals_us.min()) if early.any() else 0.0

    @property
    def wait_us(self) -> Times:
        """Shape (ranks,): time from a rank's arrival to its finish in which neither of its ports moved data."""
        busy = np.zeros(len(self.finish_us))
        binding = np.array(self.schedule.binding)
        for rank in range(len(busy)):
            mine = (binding[self.messages.src] == rank) | (binding[self.messages.dst] == rank)
            busy[rank] = _covered(self.start_us[mine], self.end_us[mine])
        return self.finish_us - self.arrivals_us - busy

    def critical_path(self) -> list[int]:
        """Messages, first to last, each of which waited for the one before; the last ends when the collective does."""
        if not len(self.messages):
            return []
        path = [int(np.argmax(self.end_us))]
        while self.after[path[-1]] >= 0:
            path.append(int(self.after[path[-1]]))
        return path[::-1]


def simulate(
    schedule: Schedule, topology: Topology, arrivals: ArrivalProfile, size_bytes: int, *, round_latency_us: float = 0.0
) -> Simulation:
    """Run `schedule` for a message of `size_bytes` in the model of this module.

    Raises `NotApplicable` when the schedule needs shared ports and the topology has exclusive ones, `InputError` when
    sizes do not fit each other, `TopologyError` when two ranks that talk have no route.

    O(rows + messages · hops), in array operations per round.
    """
    _fits(schedule, topology, arrivals)
    bound = bind_by_arrival(schedule, arrivals)
    if bound.branches:
        bound, start = _decide(bound, topology, arrivals, size_bytes, round_latency_us)
    else:
        start = 0.0
    return _Run(bound, topology, arrivals, size_bytes, round_latency_us, start).run()


def bind_by_arrival(schedule: Schedule, arrivals: ArrivalProfile) -> Schedule:
    """The schedule with its roles bound, in order of stage, to the ranks in order of arrival, if it leaves that open."""
    if schedule.bind_at == "plan":
        return schedule
    roles = np.argsort(schedule.stages, kind="stable")
    binding = np.empty(schedule.ranks, dtype=np.int64)
    binding[roles] = np.argsort(arrivals.single, kind="stable")
    return schedule.bound_to([int(rank) for rank in binding])


def _fits(schedule: Schedule, topology: Topology, arrivals: ArrivalProfile) -> None:
    if not schedule.ranks == topology.ranks == arrivals.ranks:
        raise InputError(
            f"the schedule is for {schedule.ranks} ranks, the topology has {topology.ranks} and the arrivals {arrivals.ranks}"
        )
    if schedule.ports == "shared" and topology.ports == "exclusive":
        raise NotApplicable(
            f"{schedule.provenance.algorithm} sends to several peers at once, but the ports of {topology.name} are exclusive; "
            "use a one-port algorithm (circulant, tiling, ring)"
        )


def _decide(
    schedule: Schedule, topology: Topology, arrivals: ArrivalProfile, size_bytes: int, round_latency_us: float
) -> tuple[Schedule, float]:
    """The branch that the last arrival picks, and when it may start: one round trip after that arrival.

    Every pre-work round that some rank has started by then is finished.
    """
    trunk = _Run(schedule, topology, arrivals, size_bytes, round_latency_us, 0.0).run()
    last = arrivals.last_us
    started = trunk.messages.round[trunk.start_us < last]
    cut = int(started.max()) + 1 if len(started) else 0
    late = int(np.argmax(arrivals.single))
    trip = max(topology.pair_latency_us(late, r) + topology.pair_latency_us(r, late) for r in range(topology.ranks) if r != late)
    return schedule.resolve(cut), last + trip


class _Run:
    """One pass over the rounds."""

    def __init__(
        self, schedule: Schedule, topology: Topology, arrivals: ArrivalProfile, size_bytes: int, round_latency_us: float,
        decision_us: float,
    ) -> None:
        self.schedule, self.topology = schedule, topology
        self.messages = Messages.of(schedule)
        self.locations = Locations.of(schedule)
        self.arrivals_us = np.array(arrivals.single, dtype=np.float64)
        binding = np.array(schedule.binding)
        self.src, self.dst = binding[self.messages.src], binding[self.messages.dst]
        self.resources, self.service_us = self._service(size_bytes)
        self.round_us = np.where(_first_of_round(self.messages), round_latency_us, 0.0)
        # Messages with no pre-work role wait for the decision that chose them (schedules with branches only).
        stage = np.array([phase.stage for phase in schedule.phases])[self.messages.phase]
        self.earliest_us = np.maximum(self.arrivals_us[self.src], self.arrivals_us[self.dst])
        if decision_us:
            self.earliest_us = np.where(stage >= schedule.last_stage, np.maximum(self.earliest_us, decision_us), self.earliest_us)
        count = len(self.messages)
        self.start_us, self.end_us = np.zeros(count), np.zeros(count)
        self.after, self.reason = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int8)
        self.free_us = np.zeros(self.resources.max() + 2 if count else 1)
        self.last_user = np.full(len(self.free_us), -1, dtype=np.int64)
        self.landed_us, self.landed_by = np.zeros(len(self.locations)), np.full(len(self.locations), -1, dtype=np.int64)
        self.read_us = np.zeros(len(self.locations))

    def _service(self, size_bytes: int) -> tuple[NDArray[np.int64], Times]:
        """Shapes (messages, hops): the links of each message's route, -1 beyond its end, and its time on each, µs."""
        topology, ranks = self.topology, self.topology.ranks
        pairs, which = np.unique(self.src * ranks + self.dst, return_inverse=True)
        routes = [topology.route(int(pair) // ranks, int(pair) % ranks) for pair in pairs]
        hops = max((len(route) for route in routes), default=0)
        links = np.array([[*route, *[-1] * (hops - len(route))] for route in routes], dtype=np.int64).reshape(len(pairs), hops)
        latency = np.array([link.latency_us for link in topology.links] + [0.0])[links]
        us_per_byte = np.array([1e-3 / link.bandwidth_gbs for link in topology.links] + [0.0])[links]
        size = self.messages.weight * (size_bytes / self.schedule.chunks.total)
        service = latency[which] + us_per_byte[which] * size[:, None]
        resources = links[which]
        if topology.ports == "exclusive":
            ports = np.stack([len(topology.links) + self.src, len(topology.links) + ranks + self.dst], axis=1)
            resources = np.concatenate([ports, resources], axis=1)
            whole = latency[which].sum(axis=1) + us_per_byte[which].max(axis=1, initial=0.0) * size
            service = np.repeat(whole[:, None], resources.shape[1], axis=1)
        return resources, service

    def run(self) -> Simulation:
        row_starts = self.schedule.transfers.round_starts()
        message_starts = np.searchsorted(self.messages.round, np.arange(len(row_starts)))
        for number in range(len(row_starts) - 1):
            rows = slice(int(row_starts[number]), int(row_starts[number + 1]))
            batch = np.arange(message_starts[number], message_starts[number + 1])
            if len(batch):
                self._round(rows, batch)
        return Simulation(
            self.schedule, self.messages, self.start_us, self.end_us, self.after, self.reason, self._finish(), self.arrivals_us
        )

    def _round(self, rows: slice, batch: NDArray[np.int64]) -> None:
        source, target = self.locations.source[rows], self.locations.target[rows]
        of_row = self.messages.of_row[rows]
        ready, ready_by = self._data(source, of_row, batch)
        for wave in _waves(self.resources[batch]):
            self._serve(batch[wave], ready[wave], ready_by[wave])
        end = self.end_us[of_row]
        np.maximum.at(self.read_us, source, end)
        landing = np.maximum.reduce([end, self.landed_us[target], self.read_us[target]])
        later = landing >= self.landed_us[target]
        np.maximum.at(self.landed_us, target, landing)
        self.landed_by[target[later]] = of_row[later]

    def _data(self, source: NDArray[np.int64], of_row: NDArray[np.int64], batch: NDArray[np.int64]) -> tuple[Times, NDArray[np.int64]]:
        """When the data of each message of the batch has landed, and which message brought the last of it."""
        ready, ready_by = np.zeros(len(batch)), np.full(len(batch), -1, dtype=np.int64)
        place = of_row - batch[0]
        np.maximum.at(ready, place, self.landed_us[source])
        decisive = self.landed_us[source] >= ready[place]
        ready_by[place[decisive]] = self.landed_by[source[decisive]]
        return ready, ready_by

    def _serve(self, m: NDArray[np.int64], ready: Times, ready_by: NDArray[np.int64]) -> None:
        """Messages `m`, no two of which share a link, take their turn on every link they need."""
        resources, service = self.resources[m], self.service_us[m]
        free = self.free_us[resources]  # the padding -1 names a last, always free entry
        user = self.last_user[resources]
        if self.topology.ports == "exclusive":
            gate, gate_by = free.max(axis=1), user[np.arange(len(m)), free.argmax(axis=1)]
        else:
            gate, gate_by = free[:, 0], user[:, 0]
        causes = np.stack([self.earliest_us[m], ready, gate])
        begin = causes.max(axis=0)
        why = causes.argmax(axis=0).astype(np.int8)
        after = np.choose(why, [np.full(len(m), -1), ready_by, gate_by])
        first = begin + self.round_us[m]
        if self.topology.ports == "exclusive":
            passed = np.repeat((first + service[:, 0])[:, None], resources.shape[1], axis=1)
        else:
            passed = np.maximum(free, first[:, None]) + service
        end = passed.max(axis=1)
        held_up = end > first + service.max(axis=1) * (1 + 1e-12)
        slow = passed.argmax(axis=1)
        self.after[m] = np.where(held_up, user[np.arange(len(m)), slow], after)
        self.reason[m] = np.where(held_up, REASONS.index("port"), why)
        self.start_us[m], self.end_us[m] = begin, end
        real = resources >= 0
        self.free_us[resources[real]] = passed[real]
        self.last_user[resources[real]] = np.broadcast_to(m[:, None], resources.shape)[real]

    def _finish(self) -> Times:
        finish = self.arrivals_us.copy()
        np.maximum.at(finish, self.src, self.end_us)
        accumulators = self.schedule.ranks * len(self.schedule.chunks)
        landed = self.landed_us[:accumulators].reshape(self.schedule.ranks, -1).max(axis=1)
        np.maximum.at(finish, np.array(self.schedule.binding), landed)
        return finish


def _first_of_round(messages: Messages) -> NDArray[np.bool_]:
    """Shape (messages,): is it the first that its sender sends in its round?"""
    key = messages.round.astype(np.int64) * (int(messages.src.max(initial=0)) + 1) + messages.src
    first = np.zeros(len(messages), dtype=bool)
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


def _covered(start: Times, end: Times) -> float:
    """Length of the union of intervals."""
    order = np.argsort(start)
    start, reach = start[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(start[1:] - reach[:-1], 0.0)
    return float(reach[-1] - start[0] - gaps.sum()) if len(start) else 0.0
