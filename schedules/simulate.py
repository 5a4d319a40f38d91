"""`simulate`: when does each message of a schedule start and end on a given topology, and when is every rank done?

The model. A message of b bytes passes every link of its route and occupies each for its latency + b / bandwidth. It
starts when

* the data of all its chunks has landed at the source (transfers of earlier rounds),
* both ranks have arrived, and
* its first link is free and no message of higher priority (round, then row) is ready for it; a sender pays
  `round_latency_us` once per round, before its first message. Messages of a one-port schedule keep the order of rounds
  at every port.

With `shared` ports the links of a route are a pipeline: each passes the message on while it comes in, so concurrent
messages
share a port without blocking one another (a switch that buffers, as TCP flows and NVLink transfers share a port).
With `exclusive` ports a message holds its sender's and receiver's port and all its links together from start to end.
A message that comes in before its slot may be written is kept aside and lands when the slot is free.

So no port ever carries more than its rate, and the modelled time is never below the bounds of
`latecomer.schedules.bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.engines import events, rounds
from latecomer.schedules.engines.case import REASONS, Case, Times
from latecomer.schedules.errors import InputError
from latecomer.schedules.messages import Messages
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.topology import Topology
from latecomer.schedules.units import require_range

__all__ = ["REASONS", "Simulation", "bind_by_arrival", "simulate"]


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
    own_us:
        Shape (messages,): what the message takes when nothing is in its way.
    after, reason:
        Shape (messages,): the message each one waited for last (-1: none) and why, as an index into `REASONS`.
    finish_us:
        Shape (ranks,): when the rank holds its result and has sent all it has to send.
    arrivals_us:
        Shape (ranks,).
    time_us:
        From the last arrival to the last rank's finish.
    """

    schedule: Schedule
    messages: Messages
    start_us: Times
    end_us: Times
    own_us: Times
    after: NDArray[np.int64]
    reason: NDArray[np.int8]
    finish_us: Times
    arrivals_us: Times
    time_us: float

    @property
    def prework_us(self) -> float:
        """From the first arrival to the end of the pre-work; also the delay needed to hide it. 0 where there is
        none."""
        stages = np.array([phase.stage for phase in self.schedule.phases])[self.messages.phase]
        early = stages < self.schedule.last_stage
        return float(self.end_us[early].max() - self.arrivals_us.min()) if early.any() else 0.0

    @property
    def wait_us(self) -> Times:
        """Shape (ranks,): time from a rank's arrival to its finish in which neither of its ports moved data."""
        binding = np.array(self.schedule.binding)
        src, dst = binding[self.messages.src], binding[self.messages.dst]
        # A message is at its sender's port when it starts and at its receiver's port until it ends.
        sent, got = self.start_us + self.own_us, self.end_us - self.own_us
        busy = np.zeros(len(self.finish_us))
        for rank in range(len(busy)):
            out, into = src == rank, dst == rank
            starts = np.maximum(np.concatenate([self.start_us[out], got[into]]), self.arrivals_us[rank])
            busy[rank] = _covered(starts, np.concatenate([sent[out], self.end_us[into]]))
        wait: Times = self.finish_us - self.arrivals_us - busy
        wait[np.abs(wait) < 1e-9 * self.finish_us.max(initial=0.0)] = 0.0  # differences of times that are the same
        return wait

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

    O(rows) for one-port schedules, O(rows log rows) for others.
    """
    _fits(schedule, topology, arrivals)
    require_range(size_bytes, round_latency_us)
    bound = bind_by_arrival(schedule, arrivals)
    decision_us: float | None = None
    if bound.branches:
        bound, decision_us = _decide(bound, topology, arrivals, size_bytes, round_latency_us)
    return _run(bound, topology, arrivals, size_bytes, round_latency_us, decision_us)


def _run(
    schedule: Schedule,
    topology: Topology,
    arrivals: ArrivalProfile,
    size_bytes: int,
    round_us: float,
    decision_us: float | None,
) -> Simulation:
    """`decision_us`, after the last arrival: no message of the last stage starts before."""
    # On a clock that is 0 at the last arrival: what is measured from there keeps all its digits.
    last_us = arrivals.last_us
    here_us = np.array(arrivals.single, dtype=np.float64) - last_us
    case = Case.of(schedule, topology, here_us, size_bytes, round_us, decision_us)
    engine = rounds if schedule.ports == "exclusive" else events
    timeline = engine.run(case)
    finish = here_us.copy()
    np.maximum.at(finish, case.src, timeline.end_us)
    np.maximum.at(finish, np.array(schedule.binding), timeline.landed_us.reshape(schedule.ranks, -1).max(axis=1))
    return Simulation(
        schedule,
        case.messages,
        timeline.start_us + last_us,
        timeline.end_us + last_us,
        case.whole_us,
        timeline.after,
        timeline.reason,
        finish + last_us,
        here_us + last_us,
        float(finish.max()),
    )


def bind_by_arrival(schedule: Schedule, arrivals: ArrivalProfile) -> Schedule:
    """The schedule with its roles bound, in order of stage, to the ranks in order of arrival, if it leaves that
    open."""
    if schedule.bind_at == "plan":
        return schedule
    roles = np.argsort(schedule.stages, kind="stable")
    binding = np.empty(schedule.ranks, dtype=np.int64)
    binding[roles] = np.argsort(arrivals.single, kind="stable")
    return schedule.bound_to([int(rank) for rank in binding])


def _fits(schedule: Schedule, topology: Topology, arrivals: ArrivalProfile) -> None:
    if not schedule.ranks == topology.ranks == arrivals.ranks:
        raise InputError(
            f"the schedule is for {schedule.ranks} ranks, the topology has {topology.ranks} "
            f"and the arrivals {arrivals.ranks}"
        )
    if schedule.ports == "shared":
        topology.require_shared_ports(schedule.provenance.algorithm)


def _decide(
    schedule: Schedule, topology: Topology, arrivals: ArrivalProfile, size_bytes: int, round_latency_us: float
) -> tuple[Schedule, float]:
    """The branch that the last arrival picks, and how long after it that may start: one round trip, µs.

    Every pre-work round that some rank has started by then is finished.
    """
    trunk = _run(schedule, topology, arrivals, size_bytes, round_latency_us, None)
    last = arrivals.last_us
    started = trunk.messages.round[trunk.start_us < last]
    cut = int(started.max()) + 1 if len(started) else 0
    late = int(np.argmax(arrivals.single))
    trip = max(
        topology.pair_latency_us(late, r) + topology.pair_latency_us(r, late)
        for r in range(topology.ranks)
        if r != late
    )
    return schedule.resolve(cut), trip


def _covered(start: Times, end: Times) -> float:
    """Length of the union of intervals."""
    order = np.argsort(start)
    start, reach = start[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(start[1:] - reach[:-1], 0.0)
    return float(reach[-1] - start[0] - gaps.sum()) if len(start) else 0.0
