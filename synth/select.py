"""`compare` and `select`: every algorithm that applies, built, simulated and set beside the bound; the best of them.

The choice is made by the simulator on the whole schedule, pre-work included, so a delay that is too short counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from latecomer.schedules.errors import InputError, NotApplicable, TopologyError
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.simulate import Simulation
from latecomer.synth import chunking
from latecomer.synth.question import Question
from latecomer.synth.registry import ALGORITHMS, LISTED, Algorithm, Request
from latecomer.synth.ring_order import ring_order

MAX_CHUNKS: Final = 4096
"""More gain nothing in any model, and the time to find and simulate a schedule grows with their square."""


@dataclass(frozen=True)
class Candidate:
    """One algorithm's answer: a schedule with its simulation, or the reason why there is none."""

    algorithm: Algorithm
    schedule: Schedule | None = None
    simulation: Simulation | None = None
    reason: str | None = None

    @property
    def time_us(self) -> float:
        """Time after the last arrival, µs; infinite where the algorithm does not apply."""
        return self.simulation.time_us if self.simulation else float("inf")


def compare(
    question: Question,
    *,
    chunks: int | None = None,
    algorithms: Iterable[Algorithm] = LISTED,
    progress: Callable[[str], None] = lambda name: None,
) -> list[Candidate]:
    """One `Candidate` per algorithm, in their order."""
    found = []
    for algorithm in algorithms:
        progress(algorithm.name)
        if algorithm.slow(question.topology.ranks):
            found.append(Candidate(algorithm, reason="its search takes long for so many ranks; ask for it by name"))
        else:
            found.append(evaluate(algorithm, question, chunks))
    return found


def select(
    question: Question, *, chunks: int | None = None, progress: Callable[[str], None] = lambda name: None
) -> Candidate:
    """The fastest of the algorithms that `auto` considers; ties go to the earlier one.

    A schedule whose chunks divide powers of two is taken where that costs under 2 % (and under 1 % more than the
    best synchronous one): runtimes silently ignore a file for any other number of elements.

    Raises `NotApplicable` with every reason where there is none.
    """
    candidates = compare(question, chunks=chunks, algorithms=[a for a in ALGORITHMS if a.automatic], progress=progress)
    best = min(candidates, key=lambda candidate: candidate.time_us)
    if best.schedule is None:
        raise NotApplicable(f"no algorithm serves this case:\n{_reasons(candidates)}")
    limit = min(
        [best.time_us * chunking.PREFERENCE]
        + [c.time_us * 1.01 for c in candidates if c.schedule is not None and not c.algorithm.late]
    )
    fitting = [c for c in candidates if c.time_us <= limit and c.schedule is not None and _power_of_two(c.schedule)]
    return min(fitting, key=lambda candidate: candidate.time_us, default=best)


def _power_of_two(schedule: Schedule) -> bool:
    return schedule.chunks.total & (schedule.chunks.total - 1) == 0


def _reasons(candidates: Iterable[Candidate]) -> str:
    """A line for each reason, with all algorithms that have it."""
    names: dict[str, list[str]] = {}
    for candidate in candidates:
        reason = (candidate.reason or "").removeprefix(candidate.algorithm.name).lstrip()
        names.setdefault(reason, []).append(candidate.algorithm.name)
    return "\n".join(f"  {', '.join(having)}: {reason}" for reason, having in names.items())


def evaluate(algorithm: Algorithm, question: Question, chunks: int | None) -> Candidate:
    """Build and simulate; an algorithm that does not apply says why instead."""
    try:
        schedule = build(algorithm, question, chunks)
        return Candidate(algorithm, schedule, question.simulate(schedule))
    except (NotApplicable, TopologyError) as error:
        return Candidate(algorithm, reason=str(error).removeprefix(f"{algorithm.name}: "))


def build(algorithm: Algorithm, question: Question, chunks: int | None) -> Schedule:
    """The schedule of `algorithm` for `question`, its last role played by the last rank to arrive.

    Raises `NotApplicable`, and `InputError` for a number of chunks below 1.
    """
    if chunks is not None and chunks < 1:
        raise InputError(f"the message must be cut into at least 1 chunk, not {chunks}")
    topology = question.topology
    if chunks is not None and chunks > MAX_CHUNKS:
        raise InputError(f"{chunks} chunks are more than gain anything; take {MAX_CHUNKS} or fewer")
    if algorithm.ports == "shared":
        topology.require_shared_ports(algorithm.name)
    if algorithm.name == "ring":  # only needs links between neighbours, and can choose its neighbours
        return algorithm.build(Request(topology.ranks, chunks, question.model())).bound_to(ring_order(topology))
    topology.require_switch(algorithm.name)
    schedule = algorithm.build(Request(topology.ranks, chunks, question.model()))
    if not algorithm.late:
        return schedule
    late = question.arrivals.order[-1]
    return schedule.bound_to([*(rank for rank in range(topology.ranks) if rank != late), late])
