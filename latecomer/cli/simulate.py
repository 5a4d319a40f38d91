"""`latecomer simulate FILE`: what a schedule costs on a network, under arrival times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from latecomer.cli.artifacts import load_schedule, said_of
from latecomer.cli.options import question_options
from latecomer.cli.output import echo_facts, echo_json, table, warn
from latecomer.cli.synth import bound_line
from latecomer.schedules.units import count, format_time

if TYPE_CHECKING:
    from latecomer.schedules.schedule import Schedule
    from latecomer.schedules.simulate import Simulation
    from latecomer.synth.question import Question

_SHOWN_HOPS = 12
"""Messages of the critical path that a person wants to see; --json has them all."""


@click.command("simulate")
@click.argument("file")
@question_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every message, instead.")
def command(file: str, question: Question, as_json: bool) -> None:
    """When the messages of the schedule in FILE start and end, and when every rank is done.

    \b
      latecomer simulate plan.json --topology dgx-h100 --late 3 --delay 1ms --size 1GiB
    """
    from latecomer.schedules.check import check

    schedule = load_schedule(file, "simulate")
    with said_of(file):
        check(schedule)
    for difference in _differs(schedule, question):
        warn(difference)
    run, found = question.simulate(schedule), question.bounds()
    # The bounds are those of AllReduce; parts of it may be faster.
    gap = run.time_us / found.bound_us - 1 if schedule.collective == "allreduce" else None
    if as_json:
        costs = {"bound_us": found.bound_us, "bound_latency_us": found.bound_latency_us, "gap": gap}
        echo_json(_summary(run, question) | costs | _details(run))
        return
    counts = f"{count(len(schedule.chunks), 'chunk')}, {count(len(run.messages), 'message')}"
    prework = f"done {format_time(run.prework_us)} after the first arrival" if run.prework_us else "none"
    echo_facts(
        [
            ("understood", str(question)),
            ("schedule", f"{schedule.provenance.algorithm}, {counts}"),
            ("", ""),
            ("time", f"{format_time(run.time_us)} after the last arrival"),
            ("bound", bound_line(found.bound_us, found.bound_latency_us, run.time_us)),
            ("pre-work", prework),
            ("", ""),
            ("ranks", _ranks(run)),
            ("", ""),
            ("critical path", _path(run)),
        ]
    )


def _differs(schedule: Schedule, question: Question) -> list[str]:
    """What the plan was made for, where that is not what is asked."""
    found = []
    late = question.arrivals.late_rank
    planned = [schedule.binding[role] for role in schedule.late_roles]
    if planned and late is not None and late not in planned and schedule.bind_at == "plan":
        found.append(f"the plan expects rank {planned[-1]} to be late, and rank {late} is: correct, but slower")
    made_for = schedule.provenance.topology_digest
    if made_for is not None and made_for != question.topology.digest:
        found.append("the plan was made for another topology")
    return found


def _summary(run: Simulation, question: Question) -> dict[str, Any]:
    return {
        "algorithm": run.schedule.provenance.algorithm,
        "topology": question.topology.name,
        "ranks": run.schedule.ranks,
        "chunks": len(run.schedule.chunks),
        "rounds": run.schedule.rounds,
        "size_bytes": question.size_bytes,
        "time_us": run.time_us,
        "prework_us": run.prework_us,
    }


def _details(run: Simulation) -> dict[str, Any]:
    return {
        "arrivals_us": run.arrivals_us.tolist(),
        "finish_us": run.finish_us.tolist(),
        "wait_us": run.wait_us.tolist(),
        "critical_path": run.critical_path(),
        "messages": _messages(run, range(len(run.messages))),
    }


def _messages(run: Simulation, numbers: Any) -> list[dict[str, Any]]:
    from latecomer.schedules.simulate import REASONS

    binding = run.schedule.binding
    return [
        {
            "round": int(run.messages.round[m]),
            "src": binding[int(run.messages.src[m])],
            "dst": binding[int(run.messages.dst[m])],
            "start_us": float(run.start_us[m]),
            "end_us": float(run.end_us[m]),
            "waited_for": REASONS[int(run.reason[m])],
        }
        for m in numbers
    ]


def _ranks(run: Simulation) -> str:
    rows = [
        (
            f"rank {rank}",
            *(format_time(float(column[rank])) for column in (run.arrivals_us, run.finish_us, run.wait_us)),
        )
        for rank in range(len(run.finish_us))
    ]
    return table(("", "arrives", "is done", "waits"), rows)


def _path(run: Simulation) -> str:
    hops = _messages(run, run.critical_path())
    rows = [
        (f"rank {hop['src']} → {hop['dst']}", str(hop["round"]), format_time(hop["start_us"]),
         format_time(hop["end_us"]), hop["waited_for"])
        for hop in hops[-_SHOWN_HOPS:]
    ]  # fmt: skip
    left_out = len(hops) - len(rows)
    text = table(("", "round", "starts", "ends", "waited for"), rows)
    return f"the last {len(rows)} of {len(hops)} messages\n{text}" if left_out else text
