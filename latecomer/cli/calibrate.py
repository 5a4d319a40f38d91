"""`latecomer calibrate FILE`: latencies and rate from measurements."""

from __future__ import annotations

from dataclasses import asdict

import click

from latecomer.cli.output import echo_facts, echo_json, warn
from latecomer.schedules.units import format_rate, format_time


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
    if as_json:
        echo_json(asdict(found))
        return
    ranks = next((row["ranks"] for row in rows if row.get("ranks")), "N")
    alpha, rounds = f"{found.message_latency_us:.4g}us", f"{found.round_latency_us:.4g}us"
    if not found.told_apart:
        warn("these algorithms send one message a round: measure all_pairs_sync too, to tell a round from a message")
    echo_facts(
        [
            ("rate", f"{format_rate(found.rate_gbs)} per port and direction"),
            ("message", f"{format_time(found.message_latency_us)} each"),
            ("round", f"{format_time(found.round_latency_us)} each"),
            ("fit", f"{found.rows} measurements, {found.median_error:.1%} off in the median, "
                    f"{found.largest_error:.1%} at most"),
            ("", ""),
            ("next", f"--topology switch:{ranks}@{found.rate_gbs:.4g}GB/s,{alpha} --round-latency {rounds}"),
        ]
    )  # fmt: skip
