"""`synthesize`: topology + arrival times + message size → a proven `Schedule`. The one entry point of this room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.bounds import schedule_round_bound
from latecomer.schedules.check import check
from latecomer.schedules.errors import LatecomerError
from latecomer.schedules.schedule import Certificate, Schedule
from latecomer.schedules.topology import Topology
from latecomer.schedules.units import count
from latecomer.synth.question import Question
from latecomer.synth.registry import named
from latecomer.synth.select import build, evaluate, select


def synthesize(
    topology: Topology,
    arrivals: ArrivalProfile,
    size_bytes: int,
    *,
    algorithm: str = "auto",
    chunks: int | None = None,
    round_latency_us: float = 0.0,
    progress: Callable[[str], None] = lambda name: None,
) -> Schedule:
    """A checked schedule with its certificate.

    Parameters
    ----------
    topology, arrivals, size_bytes:
        The question. Of an arrival vector with several late ranks the last one is treated as the straggler.
    algorithm:
        A name of `latecomer.synth.registry.ALGORITHMS`, or `auto`: the fastest that applies, by simulation.
    chunks:
        How many the message is cut into (for all_pairs and adaptive: segments, of one piece per owner); None: the
        number that minimises the model's time, a power of two where that costs under 2 %.
    round_latency_us:
        What starting a round costs a rank; a message's own latency is that of its links.

    Raises
    ------
    NotApplicable
        The algorithm does not serve the number of ranks, the port model or the topology; the message says what does.
    IncorrectSchedule
        Never, unless a construction has a fault: what is returned has been checked.
    """
    question = Question(topology, arrivals, size_bytes, round_latency_us)
    if algorithm == "auto":
        chosen = select(question, chunks=chunks, progress=progress).schedule
        assert chosen is not None
    else:
        progress(algorithm)
        chosen = build(named(algorithm), question, chunks)
    progress("checking")
    check(chosen)
    return certify(chosen, question)


def certify(schedule: Schedule, question: Question) -> Schedule:
    """`schedule`, which must have been checked, with what it achieves in answer to `question` and what no schedule
    beats."""
    bounds, simulation = question.bounds(), question.simulate(schedule)
    ran = simulation.schedule
    bound_rounds = schedule_round_bound(ran) if ran.late_roles else None
    ring = evaluate(named("ring"), question, None).simulation
    gap = simulation.time_us / bounds.bound_us - 1
    if gap < -1e-9:
        raise LatecomerError(
            f"{schedule.provenance.algorithm} would beat the lower bound by {-gap:.2%}: "
            "the simulator or the bound is wrong; please report this"
        )
    certificate = Certificate(
        proof=_proof(schedule, ran.rounds, bound_rounds),
        rounds=ran.rounds,
        bound_rounds=bound_rounds,
        size_bytes=question.size_bytes,
        time_us=simulation.time_us,
        bound_us=bounds.bound_us,
        bound_latency_us=bounds.bound_latency_us,
        gap=max(gap, 0.0),
        ring_time_us=ring.time_us if ring else None,
        prework_us=simulation.prework_us if schedule.late_roles else None,
        note=_note(schedule, bound_rounds, ran.rounds, bounds.tight),
    )
    provenance = schedule.provenance.model_copy(
        update={"topology_digest": question.topology.digest, "arrivals_digest": question.arrivals.digest}
    )
    return schedule.model_copy(update={"certificate": certificate, "provenance": provenance})


def _proof(
    schedule: Schedule, rounds: int, bound_rounds: int | None
) -> Literal["checked", "round-optimal", "exhaustive"]:
    if rounds == bound_rounds:
        return "round-optimal"
    return "exhaustive" if schedule.provenance.parameters.get("proven_rounds") == rounds else "checked"


def _note(schedule: Schedule, bound_rounds: int | None, rounds: int, tight: bool) -> str | None:
    notes = []
    search = schedule.provenance.parameters.get("search")
    if search:
        notes.append(f"exhaustive search with these owners: {search}")
    elif bound_rounds is not None and rounds > bound_rounds:
        more = rounds - bound_rounds
        notes.append(f"{count(more, 'round')} more than the bound")
    if not tight:
        notes.append("neither one switch nor a full mesh: the bound is valid but may be weak")
    return "; ".join(notes) or None
