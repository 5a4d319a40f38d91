"""`latecomer check FILE`: is it correct?"""

from __future__ import annotations

from typing import Any

import click

from latecomer.cli.artifacts import Artifact, load_artifact, said_of
from latecomer.cli.options import reads
from latecomer.cli.output import echo_facts, echo_json, keep_input, working, write_file, write_sarif
from latecomer.schedules.errors import IncorrectSchedule, InputError
from latecomer.schedules.units import count, parse_size

_PROVEN = "every contribution is in every result exactly once, whatever the timing"


@click.command("check")
@click.argument("file")
@click.option("--target", metavar="T", help="Program: the runtime it is for. [what all of them accept]")
@click.option("--size", metavar="SIZE", callback=reads(parse_size), help="Program: the message it is to serve.")
@click.option("--shrink", metavar="OUT", help="Program: write the smallest one found with its first error to OUT.")
@click.option("--sarif", metavar="OUT", help="Program: write the findings as SARIF 2.1.0 to OUT too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
@click.pass_context
def command(
    ctx: click.Context,
    file: str,
    target: str | None,
    size: int | None,
    shrink: str | None,
    sarif: str | None,
    as_json: bool,
) -> None:
    """Prove that the schedule (.json) or MSCCL program (.xml) in FILE computes its collective.

    Exits 0 when it does, and 1, saying where it goes wrong, when it does not. Of a custom collective no result is
    judged, since the format does not say what it should be: that it ends, without a race, is what is proven.
    """
    for output in (shrink, sarif):
        keep_input(file, output)
    artifact = load_artifact(file)
    if artifact.is_program:
        correct = _program(artifact, target, size, as_json, sarif)
        if shrink is not None and correct:
            click.echo("nothing to shrink: no finding is an error", err=True)
        elif shrink is not None:
            _shrink(artifact, target, size, shrink)
    elif any(option is not None for option in (target, size, shrink, sarif)):
        raise InputError(f"--target, --size, --shrink and --sarif are for a program; {artifact.name} is a schedule")
    else:
        correct = _schedule(artifact, as_json)
    if not correct:
        ctx.exit(IncorrectSchedule.exit_code)


def _schedule(artifact: Artifact, as_json: bool) -> bool:
    from latecomer.schedules.check import check

    schedule = artifact.schedule()
    try:
        with said_of(artifact.name):
            report = check(schedule)
    except IncorrectSchedule as error:
        if not as_json:
            raise
        echo_json({"file": artifact.name, "kind": "schedule", "correct": False, "message": str(error)})
        return False
    facts: dict[str, Any] = {
        "algorithm": schedule.provenance.algorithm,
        "ranks": report.ranks,
        "chunks": report.chunks,
        "rounds": report.rounds,
        "transfers": report.transfers,
    }
    if schedule.branches:
        facts["arrival_points"] = report.arrival_points
    if as_json:
        echo_json({"file": artifact.name, "kind": "schedule", "correct": True} | facts)
    else:
        echo_facts([("correct", _PROVEN), *_words(facts)])
    return True


def _program(artifact: Artifact, target: str | None, size: int | None, as_json: bool, sarif: str | None) -> bool:
    from latecomer.codegen.verify import examine_text

    report = examine_text(artifact.text, artifact.name, target, None if size is None else [size])
    if sarif is not None:
        write_sarif(sarif, report.findings)
    if as_json:
        findings = [finding.to_dict() for finding in report.findings]
        verdict = {"file": artifact.name, "kind": "program", "correct": report.correct, "target": target}
        echo_json(verdict | report.facts | {"findings": findings})
        return report.correct
    for finding in report.findings:
        click.echo(str(finding), err=finding.severity == "error")
    if not report.correct:
        click.echo(f"error: {artifact.name} is not correct: {count(len(report.errors), 'error')}", err=True)
        return False
    echo_facts([*_proven(report.facts), *_words(report.facts)])
    return True


def _proven(facts: dict[str, Any]) -> list[tuple[str, str]]:
    if not facts.get("result_judged", True):
        return [("proven", "well formed, no deadlock and no race, whatever the timing"),
                ("not judged", "the result: what a custom collective should compute the format does not say")]
    return [("correct", _PROVEN if facts["collective"] == "allreduce" else "right on all ranks, whatever the timing")]


def _shrink(artifact: Artifact, target: str | None, size: int | None, output: str) -> None:
    """Write a smaller program with the same first error."""
    from latecomer.codegen import msccl_xml
    from latecomer.codegen.shrink import shrink
    from latecomer.codegen.verify import examine_text

    errors = examine_text(artifact.text, artifact.name, target, None if size is None else [size]).errors
    code = errors[0].code
    with working(f"looking for a smaller program with {code}"):
        small = shrink(msccl_xml.read(artifact.text, artifact.name), code, target)
    write_file(output, msccl_xml.write(small, target or "msccl-executor"))
    steps = sum(1 for _ in small.steps())
    left = f"{count(small.ranks, 'rank')} and {count(steps, 'step')}"
    click.echo(f"wrote {output}: {code} with {left}", err=True)


def _words(facts: dict[str, Any]) -> list[tuple[str, str]]:
    said = {True: "yes", False: "no"}
    return [
        (name.replace("_", " "), said[value] if isinstance(value, bool) else str(value))
        for name, value in facts.items()
    ]
