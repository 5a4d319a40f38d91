"""`Question`: on which network, who arrives when, how many bytes. What every schedule is an answer to."""

from __future__ import annotations

from dataclasses import dataclass

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.bounds import Bounds, bounds
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.simulate import Simulation, simulate
from latecomer.schedules.topology import Topology
from latecomer.schedules.units import format_size
from latecomer.synth.chunking import Model


@dataclass(frozen=True)
class Question:
    """`round_latency_us` is what starting a round costs a rank; a message's own latency is that of its links."""

    topology: Topology
    arrivals: ArrivalProfile
    size_bytes: int
    round_latency_us: float = 0.0

    def bounds(self) -> Bounds:
        """The lower bounds of this question."""
        return bounds(self.topology, self.arrivals, self.size_bytes, round_latency_us=self.round_latency_us)

    def model(self) -> Model:
        """The question as the four numbers of the closed forms."""
        topology = self.topology
        rate = min(topology.out_gbs(rank) for rank in range(topology.ranks))
        whole_us = self.size_bytes / (rate * 1e3)
        delay_us, separate = self.arrivals.delay_us, topology.full_mesh
        return Model(self.round_latency_us, topology.alpha_us, whole_us, delay_us, separate_links=separate)

    def simulate(self, schedule: Schedule) -> Simulation:
        """What `schedule` takes to answer it."""
        return simulate(schedule, self.topology, self.arrivals, self.size_bytes, round_latency_us=self.round_latency_us)

    def __str__(self) -> str:
        return f"{self.topology}\n{self.arrivals}; {format_size(self.size_bytes)} per GPU"
