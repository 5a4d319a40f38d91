"""`latecomer compare`: every algorithm against the bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from latecomer.cli.options import chunks_option, question_options
from latecomer.cli.output import echo_facts, echo_json, table, working
from latecomer.schedules.units import format_time

if TYPE_CHECKING:
    from latecomer.schedules.bounds import Bounds
    from latecomer.synth.question import Question
    from latecomer.synth.select import Candidate


@click.command("compare")
@question_options
@chunks_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def command(question: Question, chunks: int | None, as_json: bool) -> None:
    """Every algorithm against the lower bound: rounds and times after the last arrival.

    \b
      latecomer compare --topology dgx-h100 --late 3 --delay 5ms --size 1GiB
    """
    from latecomer.synth.select import compare

    bounds = question.bounds()
    with working("comparing"):
        candidates = compare(question, chunks=chunks)
    if as_json:
        echo_json(
            {
                "topology": question.topology.name,
                "ranks": question.topology.ranks,
                "size_bytes": question.size_bytes,
                "delay_us": question.arrivals.delay_us,
                "late_rank": question.arrivals.late_rank,
                "bound_us": bounds.bound_us,
                "bound_latency_us": bounds.bound_latency_us,
                "algorithms": [facts(candidate, bounds.bound_us) for candidate in candidates],
            }
        )
        return
    echo_facts(
        [
            ("understood", str(question)),
            (
                "bound",
                f"{format_time(bounds.bound_us)} by bandwidth, {format_time(bounds.bound_latency_us)} by latency",
            ),
            ("", ""),
        ]
    )
    click.echo(comparison(candidates, bounds))


def facts(candidate: Candidate, bound_us: float) -> dict[str, Any]:
    """One algorithm for `--json`: its figures, or the `reason` why there are none."""
    found: dict[str, Any] = {"algorithm": candidate.algorithm.name, "reason": candidate.reason}
    if candidate.schedule is not None and candidate.simulation is not None:
        ran = candidate.simulation.schedule
        found |= {
            "chunks": len(ran.chunks),
            "rounds": ran.rounds,
            "time_us": candidate.time_us,
            "gap": candidate.time_us / bound_us - 1,
            "prework_us": candidate.simulation.prework_us,
        }
    return found


def comparison(candidates: list[Candidate], bounds: Bounds) -> str:
    """The table, best first, beside the larger of the bounds; what does not apply comes last, with the reason."""
    bound_us = max(bounds.bound_us, bounds.bound_latency_us)
    served = sorted((c for c in candidates if c.schedule is not None), key=lambda c: c.time_us)
    rows = []
    for candidate in served:
        assert candidate.simulation is not None
        ran = candidate.simulation.schedule
        prework = candidate.simulation.prework_us
        rows.append(
            (
                candidate.algorithm.name,
                str(len(ran.chunks)),
                str(ran.rounds),
                format_time(candidate.time_us),
                f"{candidate.time_us / bound_us:.3f}",
                format_time(prework) if prework else "–",
            )
        )
    text = table(("algorithm", "chunks", "rounds", "time", "÷ bound", "pre-work"), rows)
    reasons: dict[str, list[str]] = {}
    for candidate in candidates:
        if candidate.schedule is None:
            name = candidate.algorithm.name
            reason = (candidate.reason or "").removeprefix(f"{name} ").removeprefix(f"{name}: ")
            reasons.setdefault(reason, []).append(name)
    others = [f"  {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return "\n".join([text, *(["", "do not apply:"] if others else []), *others])
