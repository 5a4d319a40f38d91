"""Plan sets: one plan per range of message sizes, with the sizes at which the best plan changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from latecomer.schedules.check import check
from latecomer.schedules.errors import InputError
from latecomer.schedules.schedule import Schedule
from latecomer.synth.question import Question
from latecomer.synth.registry import named
from latecomer.synth.select import build, select
from latecomer.synth.synthesize import certify


@dataclass(frozen=True)
class Plan:
    """`schedule` serves messages of `min_bytes` … `max_bytes`, both included."""

    min_bytes: int
    max_bytes: int
    schedule: Schedule


def plan_set(
    question: Question,
    min_bytes: int,
    max_bytes: int,
    *,
    algorithm: str = "auto",
    progress: Callable[[str], None] = lambda name: None,
) -> tuple[Plan, ...]:
    """Plans for every size in the range, in order, without gaps; neighbours differ in algorithm or chunks.

    The best plan is found for each power of two in the range (`question.size_bytes` is not used); a plan found for 2^k
    serves sizes from 2^k up to the next plan's. Each plan is checked and certified at its own smallest size.

    Raises `InputError` for an empty range, and what `select` raises.
    """
    if not 1 <= min_bytes <= max_bytes:
        raise InputError(f"a range of sizes goes up: {min_bytes} … {max_bytes} bytes does not")
    plans: list[Plan] = []
    for size in _sizes(min_bytes, max_bytes):
        progress(f"{size} bytes")
        here = Question(question.topology, question.arrivals, size, question.round_latency_us)
        found = select(here).schedule if algorithm == "auto" else build(named(algorithm), here, None)
        assert found is not None
        if plans and _same(plans[-1].schedule, found):
            continue
        if plans:
            plans[-1] = Plan(plans[-1].min_bytes, size - 1, plans[-1].schedule)
        check(found)
        plans.append(Plan(size, max_bytes, certify(found, here)))
    return tuple(Plan(plan.min_bytes, plan.max_bytes, _for_range(plan)) for plan in plans)


def _for_range(plan: Plan) -> Schedule:
    """The plan's schedule, which says what sizes it is for; an export takes them as its range."""
    old = plan.schedule.provenance
    parameters = {**old.parameters, "min_bytes": plan.min_bytes, "max_bytes": plan.max_bytes}
    return plan.schedule.model_copy(update={"provenance": old.model_copy(update={"parameters": parameters})})


def _sizes(low: int, high: int) -> list[int]:
    """`low`, and every power of two above it up to `high`."""
    powers = (1 << k for k in range(low.bit_length(), high.bit_length() + 1))
    return [low, *(size for size in powers if low < size <= high)]


def _same(a: Schedule, b: Schedule) -> bool:
    """The same moves of the same shares of the message."""
    return a.chunks == b.chunks and a.binding == b.binding and a.transfers == b.transfers
