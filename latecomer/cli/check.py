"""`latecomer check FILE`: is it correct?"""

from __future__ import annotations

from typing import Any

import click

from latecomer.cli.artifacts import load_artifact
from latecomer.cli.output import echo_facts, echo_json
from latecomer.schedules.errors import IncorrectProgram, IncorrectSchedule


@click.command("check")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
@click.pass_context
def command(ctx: click.Context, file: str, as_json: bool) -> None:
    """Prove that the schedule (.json) or MSCCL program (.xml) in FILE computes its collective.

    Exits 0 when it does, and 1, saying where it first goes wrong, when it does not.
    """
    artifact = load_artifact(file)
    try:
        facts = prove(artifact)
    except (IncorrectSchedule, IncorrectProgram) as error:
        if not as_json:
            raise
        echo_json({"file": file, "correct": False, "message": str(error)})
        ctx.exit(error.exit_code)
    if as_json:
        echo_json({"file": file, "correct": True} | facts)
        return
    words = [(name.replace("_", " "), str(value)) for name, value in facts.items()]
    echo_facts([("correct", "every contribution is in every result exactly once, whatever the timing"), *words])


def prove(artifact: Any) -> dict[str, Any]:
    """What was proven, by name. Raises `IncorrectSchedule` or `IncorrectProgram`."""
    from latecomer.schedules.schedule import Schedule

    if isinstance(artifact, Schedule):
        from latecomer.schedules.check import check

        report = check(artifact)
        return {
            "kind": "schedule",
            "algorithm": artifact.provenance.algorithm,
            "ranks": report.ranks,
            "chunks": report.chunks,
            "rounds": report.rounds,
            "transfers": report.transfers,
            "arrival_points": report.arrival_points,
        }
    raise NotImplementedError
