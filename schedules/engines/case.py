"""`Case`: all that an engine needs to know, in arrays; `Timeline`: all that it finds out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.locations import Locations
from latecomer.schedules.messages import Messages
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.topology import Topology

Times = NDArray[np.float64]

REASONS = ("arrival", "data", "port")
"""Why a message did not start earlier, or took longer than its own time."""


@dataclass(frozen=True)
class Case:
    """A schedule on a topology, message by message. The clock may start anywhere; the simulator's is 0 at the last
    arrival.

    Attributes
    ----------
    route:
        Shape (messages, hops): the links of each message's route, -1 beyond its end.
    service_us:
        Shape (messages, hops): latency + bytes / bandwidth on each of them.
    whole_us:
        Shape (messages,): latency of the route + bytes / its narrowest bandwidth.
    earliest_us:
        Shape (messages,): when both ranks are there (and the decision that chose the message has been taken).
    round_us:
        What a sender pays once per round, before its first message of that round.
    """

    schedule: Schedule
    topology: Topology
    messages: Messages
    locations: Locations
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    route: NDArray[np.int64]
    service_us: Times
    whole_us: Times
    earliest_us: Times
    round_us: float

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        topology: Topology,
        arrivals_us: Times,
        size_bytes: int,
        round_us: float,
        decision_us: float | None,
    ) -> Case:
        """`decision_us`: no message of the last stage starts before (None: no such decision). O(rows log rows)."""
        messages, ranks = Messages.of(schedule), topology.ranks
        binding = np.array(schedule.binding)
        src, dst = binding[messages.src], binding[messages.dst]
        pairs, which = np.unique(src * ranks + dst, return_inverse=True)
        routes = [topology.route(int(pair) // ranks, int(pair) % ranks) for pair in pairs]
        hops = max((len(route) for route in routes), default=1)
        padded = [[*route, *[-1] * (hops - len(route))] for route in routes]
        links = np.array(padded, dtype=np.int64).reshape(len(pairs), hops)
        latency = np.array([link.latency_us for link in topology.links] + [0.0])[links]
        us_per_byte = np.array([1e-3 / link.bandwidth_gbs for link in topology.links] + [0.0])[links]
        size = messages.weight * (size_bytes / schedule.chunks.total)
        earliest = np.maximum(arrivals_us[src], arrivals_us[dst])
        if decision_us is not None:
            stage = np.array([phase.stage for phase in schedule.phases])[messages.phase]
            earliest = np.where(stage >= schedule.last_stage, np.maximum(earliest, decision_us), earliest)
        return cls(
            schedule,
            topology,
            messages,
            Locations.of(schedule),
            src,
            dst,
            links[which],
            latency[which] + us_per_byte[which] * size[:, None],
            latency[which].sum(axis=1) + us_per_byte[which].max(axis=1, initial=0.0) * size,
            earliest,
            round_us,
        )


@dataclass(frozen=True)
class Timeline:
    """Shapes (messages,) for the first four (see `Simulation`), (accumulators,) for `landed_us`."""

    start_us: Times
    end_us: Times
    after: NDArray[np.int64]
    reason: NDArray[np.int8]
    landed_us: Times
