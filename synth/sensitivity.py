"""Can a choice be trusted when α and β are not what was assumed? The question, asked again with both off by 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from latecomer.schedules.schedule import Schedule
from latecomer.synth.question import Question
from latecomer.synth.registry import named
from latecomer.synth.select import evaluate, select

FACTORS: Final = (0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Case:
    """Latencies × `alpha_factor`, seconds per byte × `beta_factor`: the plan, the best choice there, the ring."""

    alpha_factor: float
    beta_factor: float
    time_us: float
    best: str
    best_chunks: int
    best_us: float
    ring_us: float | None

    @property
    def regret(self) -> float:
        """How much longer the plan takes than the best choice there; 0 means that the choice stands."""
        return self.time_us / self.best_us - 1

    @property
    def gain(self) -> float | None:
        """How many times as long as the plan the ring takes."""
        return self.ring_us / self.time_us if self.ring_us is not None else None


def sensitivity(schedule: Schedule, question: Question, factors: tuple[float, ...] = FACTORS) -> tuple[Case, ...]:
    """`schedule`, made for `question`, in each of the len(factors)² cases. The delay stays what it is."""
    return tuple(_case(schedule, question, alpha, beta) for alpha in factors for beta in factors)


def _case(schedule: Schedule, question: Question, alpha: float, beta: float) -> Case:
    there = Question(
        question.topology.scaled(alpha, beta), question.arrivals, question.size_bytes, question.round_latency_us * alpha
    )
    best = select(there)
    ring = evaluate(named("ring"), there, None).simulation
    time_us = there.simulate(schedule).time_us
    assert best.schedule is not None, "what is selected has been built"
    chunks = len(best.schedule.chunks)
    ring_us = ring.time_us if ring else None
    return Case(alpha, beta, time_us, best.algorithm.name, chunks, min(best.time_us, time_us), ring_us)
