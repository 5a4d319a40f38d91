"""`latecomer synth`: a question in, a proven schedule out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from latecomer.cli.options import Question, question_options, reads
from latecomer.cli.output import echo_facts, echo_json, working, write_file
from latecomer.schedules.errors import InputError
from latecomer.schedules.units import format_time

if TYPE_CHECKING:
    from latecomer.schedules.schedule import Certificate, Schedule


def _chunks(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{text!r} is neither auto nor a number of chunks, 1 or more")
    return int(text)


@click.command("synth")
@question_options
@click.option("--algorithm", default="auto", metavar="NAME", help="A construction by name. [auto: the fastest]")
@click.option("--chunks", metavar="K", callback=reads(_chunks), help="Number of chunks of the message, or auto. [auto]")
@click.option("-o", "--output", metavar="FILE", help="Write the schedule (JSON) to FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the summary.")
def command(question: Question, algorithm: str, chunks: int | None, output: str | None, as_json: bool) -> None:
    """Synthesize a schedule, prove it correct, and say what it costs beside ring and the lower bound.

    Rounds and times count after the last arrival.

    \b
      latecomer synth --topology dgx-h100 --late 3 --delay 5ms --size 1GiB -o plan.json
    """
    from latecomer.synth.synthesize import synthesize

    with working("synthesizing") as progress:
        schedule = synthesize(
            question.topology,
            question.arrivals,
            question.size_bytes,
            algorithm=algorithm,
            chunks=chunks,
            round_latency_us=question.round_latency_us,
            progress=progress,
        )
    if output:
        write_file(output, schedule.to_json())
    if as_json:
        echo_json(summary(schedule, question) | {"output": output})
    else:
        _print(schedule, question, output)


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
    rounds = f"{certificate.rounds} rounds{after}"
    if certificate.bound_rounds is not None:
        rounds += f" (bound {certificate.bound_rounds})"
    facts = [
        ("understood", str(question)),
        ("", ""),
        ("algorithm", f"{schedule.provenance.algorithm}, {_count(len(schedule.chunks), 'chunk')}, {rounds}"),
        ("time", f"{format_time(certificate.time_us)}{after}"),
        ("bound", bound_line(certificate.bound_us, certificate.bound_latency_us, certificate.gap)),
    ]
    if certificate.prework_us:
        hidden = question.arrivals.delay_us >= certificate.prework_us
        fits = "hidden by the delay" if hidden else "longer than the delay"
        facts.append(("pre-work", f"{format_time(certificate.prework_us)} while the late rank is away, {fits}"))
    if certificate.ring_time_us is not None:
        ratio = certificate.ring_time_us / certificate.time_us
        facts.append(("ring", f"{format_time(certificate.ring_time_us)}, {ratio:.3g} times as long"))
    facts.append(("proof", _PROOFS[certificate.proof]))
    if certificate.note:
        facts.append(("note", certificate.note))
    facts.append(("", ""))
    if output:
        facts.append(("wrote", output))
        facts.append(("next", f"latecomer export {output} --to msccl-executor -o {_stem(output)}.xml"))
    else:
        facts.append(("next", "the same with -o plan.json keeps the schedule"))
    echo_facts(facts)


_PROOFS = {
    "checked": "every contribution is in every result exactly once, whatever the timing",
    "round-optimal": "correct, and no one-port schedule of as many equal chunks has fewer rounds",
    "exhaustive": "correct, and a solver found that none has fewer rounds",
}


def bound_line(bound_us: float, bound_latency_us: float, gap: float | None) -> str:
    """Both bounds, and how far above the first one we are."""
    text = f"{format_time(bound_us)} by bandwidth, {format_time(bound_latency_us)} by latency"
    return text if gap is None else f"{text}; {100 * gap:.3g} % above the first"


def _certificate(schedule: Schedule) -> Certificate:
    assert schedule.certificate is not None, "synthesize certifies what it returns"
    return schedule.certificate


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _stem(path: str) -> str:
    return path.removesuffix(".json")
