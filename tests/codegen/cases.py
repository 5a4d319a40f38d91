"""The schedules that the tests of codegen compile: every algorithm that makes a static schedule."""

from __future__ import annotations

from latecomer.schedules.errors import NotApplicable
from latecomer.schedules.schedule import Schedule
from latecomer.synth.chunking import Model
from latecomer.synth.registry import ALGORITHMS, Request

STATIC = tuple(a.name for a in ALGORITHMS if a.static and a.name != "exact")
LONG_DELAY = 10_000.0
"""µs: the pre-work is over; the message itself takes 1000 µs."""


def made(name: str, ranks: int, chunks: int | None = None, delay_us: float = LONG_DELAY) -> Schedule | None:
    """The schedule, or None where the algorithm does not apply."""
    algorithm = next(a for a in ALGORITHMS if a.name == name)
    model = Model(round_us=3.0, message_latency_us=0.0, message_us=1000.0, delay_us=delay_us)
    try:
        return algorithm.build(Request(ranks, chunks, model))
    except NotApplicable:
        return None


def with_late(schedule: Schedule, rank: int) -> Schedule:
    """The same with the last role played by `rank`."""
    order = [r for r in range(schedule.ranks) if r != rank]
    return schedule.bound_to((*order, rank))
