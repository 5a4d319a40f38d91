"""`latecomer calibrate FILE`: latencies and rate from measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from latecomer.cli.output import echo_facts, echo_json, warn
from latecomer.schedules.units import count, format_rate, format_size, format_time, parse_size


@click.command("calibrate")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
def command(file: str, as_json: bool) -> None:
    """Fit the model's three numbers to the measurements in FILE, the CSV or JSON of `latecomer bench`.

    \b
      latecomer calibrate bench.csv
    """
    from latecomer.runtime.bench_files import read_rows
    from latecomer.runtime.calibrate import fit

    rows = read_rows(file)
    found = fit(rows)
    ranks = _ranks(rows)
    flags = (
        f"--topology switch:{ranks or 'N'}@{found.rate_gbs:.4g}GB/s,{found.message_latency_us:.4g}us "
        f"--round-latency {found.round_latency_us:.4g}us"
    )
    if as_json:
        echo_json(asdict(found) | {"flags": flags})
        return
    if not found.told_apart:
        warn("these algorithms send one message a round: measure all_pairs_sync too, to tell a round from a message")
    echo_facts(
        [
            ("rate", f"{format_rate(found.rate_gbs)} per port and direction"),
            ("message", f"{format_time(found.message_latency_us)} each"),
            ("round", f"{format_time(found.round_latency_us)} each"),
            ("fit", f"{count(found.rows, 'measurement')}, {found.median_error:.1%} off in the median, "
                    f"{found.largest_error:.1%} at most"),
            ("", ""),
            ("next", _next(flags, ranks, rows)),
        ]
    )  # fmt: skip


def _ranks(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """Of the measurements, where all have the same."""
    said = {str(row.get("ranks")) for row in rows}
    text = said.pop() if len(said) == 1 else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None


def _next(flags: str, ranks: int | None, rows: Sequence[Mapping[str, Any]]) -> str:
    """A command that uses the numbers, for the largest message that was measured."""
    counted = [row for row in rows if all(row.get(name) for name in ("rounds", "size_bytes", "time_us"))]
    size = max(int(float(row["size_bytes"])) for row in counted)
    short = format_size(size).replace(" ", "")
    late = ranks - 1 if ranks else "N-1"
    said = "" if ranks else " (N: your number of ranks)"
    return (
        f"latecomer compare {flags} --late {late} --delay 50ms --size {short if parse_size(short) == size else size}\n"
        f"with your late rank, delay and size{said}; synth takes the same flags and makes the plan"
    )
