"""`latecomer bounds`: what no schedule can beat."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from latecomer.cli.options import question_options
from latecomer.cli.output import echo_facts, echo_json
from latecomer.schedules.units import format_time

if TYPE_CHECKING:
    from latecomer.synth.question import Question


@click.command("bounds")
@question_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
def command(question: Question, as_json: bool) -> None:
    """Lower bounds on the time after the last arrival: no schedule can be faster.

    \b
      latecomer bounds --topology dgx-h100 --late 3 --delay 5ms --size 1GiB
    """
    found = question.bounds()
    if as_json:
        echo_json(dataclasses.asdict(found) | {"topology": question.topology.name})
        return
    weak = "" if found.tight else " (valid but perhaps weak: this network is neither one switch nor a full mesh)"
    echo_facts(
        [
            ("understood", str(question)),
            ("", ""),
            ("bandwidth", f"{format_time(found.bound_us)}{weak}"),
            ("latency", format_time(found.bound_latency_us)),
            ("", ""),
            ("next", "latecomer synth with the same flags says what a schedule reaches"),
        ]
    )
