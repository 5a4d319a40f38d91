"""`latecomer synth`: a question in, a proven schedule out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from latecomer.cli.options import chunks_option, output_option, question_options, sizes_option
from latecomer.cli.output import echo_facts, echo_json, table, working, write_file
from latecomer.schedules.errors import InputError
from latecomer.schedules.units import count, format_size, format_time

if TYPE_CHECKING:
    from latecomer.schedules.schedule import Certificate, Schedule
    from latecomer.synth.plan_set import Plan
    from latecomer.synth.question import Question


@click.command("synth")
@question_options
@sizes_option
@click.option(
    "--algorithm",
    default="auto",
    metavar="NAME",
    help="A construction by name. [auto: the fastest that a file can hold]",
)
@chunks_option
@click.option("--explain", is_flag=True, help="Also print every candidate, and why others do not apply.")
@click.option("--sensitivity", is_flag=True, help="Also print the choice with α and β off by a factor of 2.")
@output_option("Write the schedule (JSON) to OUT, - for standard output; with --sizes a directory.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the summary.")
def command(
    question: Question,
    sizes: tuple[int, int] | None,
    algorithm: str,
    chunks: int | None,
    explain: bool,
    sensitivity: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Synthesize a schedule, prove it correct, and say what it costs beside ring and the lower bound.

    Rounds and times count after the last arrival.

    \b
      latecomer synth --topology dgx-h100 --late 3 --delay 5ms --size 1GiB -o plan.json
      latecomer synth --topology dgx-h100 --late 3 --delay 5ms --sizes 1KiB..4GiB -o plans
    """
    if output == "-" and (as_json or sizes is not None):
        raise InputError("-o - gives standard output to one schedule: leave out --json and --sizes")
    if sizes is not None:
        if explain or sensitivity:
            raise InputError("--explain and --sensitivity are about one size; use --size")
        _plan_set(question, sizes, algorithm, chunks, output, as_json)
        return
    from latecomer.synth.synthesize import synthesize

    with working("synthesizing and proving") as progress:
        schedule = synthesize(
            question.topology,
            question.arrivals,
            question.size_bytes,
            algorithm=algorithm,
            chunks=chunks,
            round_latency_us=question.round_latency_us,
            progress=progress,
        )
    extra = _asked_for(schedule, question, chunks, explain, sensitivity)
    if output == "-":
        click.echo(schedule.to_json(), nl=False)
    elif output:
        write_file(output, schedule.to_json())
    if as_json:
        echo_json(summary(schedule, question) | {"output": output} | {name: value for name, value, _ in extra})
    else:
        _print(schedule, question, output)
        for _, _, text in extra:
            click.echo("\n" + text, err=output == "-")


def _asked_for(
    schedule: Schedule, question: Question, chunks: int | None, explain: bool, sensitivity: bool
) -> list[tuple[str, Any, str]]:
    """(name, value for --json, text) of the tables that --explain and --sensitivity ask for."""
    found: list[tuple[str, Any, str]] = []
    if explain:
        from latecomer.cli.compare import comparison, facts
        from latecomer.synth.select import compare

        with working("comparing"):
            candidates = compare(question, chunks=chunks)
        bounds = question.bounds()
        found.append(("candidates", [facts(c, bounds.bound_us) for c in candidates], comparison(candidates, bounds)))
    if sensitivity:
        import dataclasses

        from latecomer.synth.sensitivity import sensitivity as cases_of

        with working("asking again with other α and β"):
            cases = cases_of(schedule, question)
        rows = [
            (
                f"{case.alpha_factor:g}",
                f"{case.beta_factor:g}",
                format_time(case.time_us),
                f"{case.best}, {count(case.best_chunks, 'chunk')}",
                f"{case.regret:.1%}",
                "–" if case.gain is None else f"{case.gain:.2f}",
            )
            for case in cases
        ]
        header = ("α ×", "β ×", "time", "best there", "loss", "ring ÷ time")
        found.append(("sensitivity", [dataclasses.asdict(case) for case in cases], table(header, rows)))
    return found


def _plan_set(
    question: Question,
    sizes: tuple[int, int],
    algorithm: str,
    chunks: int | None,
    output: str | None,
    as_json: bool,
) -> None:
    from latecomer.synth.plan_set import plan_set

    if chunks is not None:
        raise InputError("--sizes chooses the number of chunks for every size; leave out --chunks")
    with working("synthesizing and proving") as progress:
        plans = plan_set(question, *sizes, algorithm=algorithm, progress=progress)
    files: list[str | None] = [None] * len(plans)
    if output:
        if os.path.isdir(output) and os.listdir(output):
            raise InputError(f"{output} is not empty, and plans of another set would mix with these; name a new one")
        try:
            os.makedirs(output, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the directory {output}: {error.strerror}") from error
        for number, plan in enumerate(plans):
            name = f"{plan.min_bytes:013d}-{plan.max_bytes:013d}-{plan.schedule.provenance.algorithm}.json"
            files[number] = os.path.join(output, name)
            write_file(os.path.join(output, name), plan.schedule.to_json())
    if as_json:
        echo_json({"plans": [_plan_facts(plan, file) for plan, file in zip(plans, files, strict=True)]})
        return
    rows = []
    for plan in plans:
        certificate = _certificate(plan.schedule)
        above = certificate.time_us / max(certificate.bound_us, certificate.bound_latency_us)
        rows.append(
            (
                f"{format_size(plan.min_bytes)} … {format_size(plan.max_bytes + (plan is not plans[-1]))}",
                plan.schedule.provenance.algorithm,
                str(len(plan.schedule.chunks)),
                str(certificate.rounds),
                format_time(certificate.time_us),
                f"{above:.3f}",
            )
        )
    click.echo(table(("message per GPU", "algorithm", "chunks", "rounds", "time at its smallest", "÷ bound"), rows))
    if output:
        click.echo(f"\nwrote {count(len(plans), 'plan')} to {output}")


def _plan_facts(plan: Plan, file: str | None) -> dict[str, Any]:
    return {
        "min_bytes": plan.min_bytes,
        "max_bytes": plan.max_bytes,
        "algorithm": plan.schedule.provenance.algorithm,
        "chunks": len(plan.schedule.chunks),
        "output": file,
        **_certificate(plan.schedule).model_dump(),
    }


def summary(schedule: Schedule, question: Question) -> dict[str, Any]:
    """What `--json` prints: the certificate, flat, with what it is about."""
    certificate = _certificate(schedule)
    return {
        "algorithm": schedule.provenance.algorithm,
        "topology": question.topology.name,
        "ranks": schedule.ranks,
        "late_rank": question.arrivals.late_rank,
        "delay_us": question.arrivals.delay_us,
        "chunks": len(schedule.chunks),
        **certificate.model_dump(),
    }


def _print(schedule: Schedule, question: Question, output: str | None) -> None:
    certificate = _certificate(schedule)
    late = not question.arrivals.is_synchronous
    after = " after the last arrival" if late else ""
    rounds = f"{count(certificate.rounds, 'round')}{after}"
    if certificate.bound_rounds is not None:
        rounds += f" (bound {certificate.bound_rounds})"
    facts = [
        ("understood", str(question)),
        ("", ""),
        ("algorithm", f"{schedule.provenance.algorithm}, {count(len(schedule.chunks), 'chunk')}, {rounds}"),
        ("time", f"{format_time(certificate.time_us)}{after}"),
        ("bound", bound_line(certificate.bound_us, certificate.bound_latency_us, certificate.time_us)),
    ]
    if certificate.prework_us:
        hidden = question.arrivals.delay_us >= certificate.prework_us
        fits = "hidden by the delay" if hidden else "longer than the delay"
        facts.append(("pre-work", f"{format_time(certificate.prework_us)} while the late rank is away, {fits}"))
    if certificate.ring_time_us is not None:
        facts.append(("ring", f"{format_time(certificate.ring_time_us)}, {_times(certificate)}"))
    facts.append(("proof", _PROOFS[certificate.proof]))
    if certificate.note:
        facts.append(("note", certificate.note))
    if output == "-":
        echo_facts(facts, err=True)
        return
    facts.append(("", ""))
    if output:
        facts.append(("wrote", output))
        facts.append(("next", _next_step(schedule, output)))
    else:
        facts.append(("next", "the same with -o plan.json keeps the schedule"))
    echo_facts(facts)


def _next_step(schedule: Schedule, output: str) -> str:
    if schedule.branches:  # decides at the arrival: no file can hold it
        return f"torchrun --nproc-per-node {schedule.ranks} -m latecomer.run {output} --size 64MiB"
    return f"latecomer export {output} --to msccl-executor -o {_stem(output)}.xml"


def _times(certificate: Certificate) -> str:
    """The ring's time against the plan's."""
    assert certificate.ring_time_us is not None
    ratio = certificate.ring_time_us / certificate.time_us
    if ratio < 0.995:
        return f"which is shorter ({ratio:.3g} of it): this plan does not pay here"
    return f"{ratio:.3g} times as long" if ratio > 1.005 else "as long"


_PROOFS = {
    "checked": "every contribution is in every result exactly once, whatever the timing",
    "round-optimal": "correct, and no one-port schedule of as many equal chunks has fewer rounds",
    "exhaustive": "correct, and a solver found that none has fewer rounds",
}


def bound_line(bound_us: float, bound_latency_us: float, time_us: float) -> str:
    """Both bounds, and how far above the larger one we are."""
    above = 100 * (time_us / max(bound_us, bound_latency_us) - 1)
    which = "first" if bound_us >= bound_latency_us else "second"
    text = f"{format_time(bound_us)} by bandwidth, {format_time(bound_latency_us)} by latency"
    return f"{text}; {max(above, 0.0):.3g} % above the {which}"


def _certificate(schedule: Schedule) -> Certificate:
    assert schedule.certificate is not None, "synthesize certifies what it returns"
    return schedule.certificate

def _stem(path: str) -> str:
    return path.removesuffix(".json")
