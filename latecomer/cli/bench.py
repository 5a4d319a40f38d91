"""`latecomer bench`, under torchrun: what collectives take on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from latecomer.cli.options import reads
from latecomer.cli.output import table, warn
from latecomer.cli.running import backend_option, late_option, parse_whole, timeout_option
from latecomer.schedules.errors import InputError, LatecomerError
from latecomer.schedules.units import format_rate, format_size, format_time, parse_size, parse_time

if TYPE_CHECKING:
    from latecomer.runtime.bench import Row

_DEFAULT = "backend,ring,halving_doubling,direct,all_pairs,adaptive"


def _several(parse: Any) -> Any:
    return reads(lambda text: [parse(part.strip()) for part in text.split(",")])


def _algorithm(text: str) -> tuple[str, int | None]:
    from latecomer.runtime.bench import BACKEND
    from latecomer.synth.registry import named

    name, colon, chunks = text.partition(":")
    if name != BACKEND:
        named(name)
    if not colon:
        return name, None
    if name == BACKEND:
        raise InputError(f"{text!r}: the backend chooses its chunks itself; write {BACKEND}")
    try:
        return name, parse_whole(chunks, "chunks", 1)
    except InputError as error:
        raise InputError(f"{text[:40]!r}: {error}; write NAME or NAME:CHUNKS, like all_pairs:16") from error


def _seed(text: str) -> int:
    return parse_whole(text, "seed", 0)


def _file(text: str) -> str:
    if not text.endswith((".csv", ".json")):
        raise InputError(f"{text!r}: measurements are written as .csv or .json")
    return text


@click.command("bench")
@click.option("--algorithm", "algorithms", callback=_several(_algorithm), default=_DEFAULT, metavar="NAMES",
              help=f"NAME or NAME:CHUNKS, comma-separated; backend is its own all_reduce. [{_DEFAULT}]")
@click.option("--size", "sizes", callback=_several(parse_size), default="16MiB", metavar="SIZES",
              help="Messages per rank, comma-separated. [16MiB]")
@click.option("--delay", "delays", callback=_several(parse_time), default="0", metavar="TIMES",
              help="How late the late rank is, comma-separated. [0]")
@late_option
@click.option("--seed", "seeds", callback=_several(_seed), default="0", metavar="SEEDS", help="Of the data. [0]")
@click.option("--runs", type=click.IntRange(1), default=5, help="Timed runs of each, after one that is not. [5]")
@click.option("--topology", "spec", metavar="SPEC", help="For choosing chunks. [switch:N@10GB/s,50us]")
@click.option("--round-latency", callback=reads(parse_time), default="0", metavar="TIME", help="Of the model. [0]")
@backend_option
@timeout_option
@click.option("-o", "--output", metavar="OUT", callback=reads(_file),
              help="Write the measurements to OUT, .csv or .json.")
def command(
    algorithms: list[tuple[str, int | None]], sizes: list[int], delays: list[float], late: int | None,
    seeds: list[int], runs: int, spec: str | None, round_latency: float, backend: str | None,
    timeout_s: float | None, output: str | None,
) -> None:  # fmt: skip
    """Measure algorithms × sizes × delays × seeds; every element of every result is checked.

    Times count from the last arrival to the last rank's completion; own: from a rank's own arrival, the
    longest. Run it under torchrun, on one machine or with clocks that agree.

    \b
      torchrun --nproc-per-node 8 -m latecomer bench --size 1MiB,64MiB --delay 0,50ms -o bench.csv
    """
    from latecomer.runtime.launch import fail, join, leave, require_room

    place = join(backend, timeout_s or 1800.0, "latecomer bench")
    from dataclasses import asdict
    from pathlib import Path

    from latecomer.runtime.bench import Case, References, measure, prepare
    from latecomer.runtime.bench_files import write_rows
    from latecomer.synth.sources.spec import load_topology

    def skipped(case: Case, why: str) -> None:
        if place.rank == 0:
            warn(f"{case.algorithm}, {format_size(case.size_bytes)}: left out: {why}")

    try:
        if place.ranks < 2:
            raise InputError("torchrun started one process; a collective needs two or more: --nproc-per-node 8")
        if place.rank == 0 and output and not Path(output).absolute().parent.is_dir():
            raise InputError(f"{output}: there is no such directory to write to")
        require_room(max(sizes) // 4)
        topology = load_topology(spec or f"switch:{place.ranks}@10GB/s,50us")
        if topology.ranks != place.ranks:
            raise InputError(f"the topology has {topology.ranks} ranks, torchrun started {place.ranks}")
        who = place.ranks - 1 if late is None else late
        cases = [
            Case(name, size, who, delay, seed, chunks)
            for size in sizes for delay in delays for seed in seeds for name, chunks in algorithms
        ]  # fmt: skip
        ready = prepare(cases, topology, round_latency, skipped)
        rows = list(
            measure(ready, runs=runs, references=References(place.ranks), device=place.device, timeout_s=timeout_s)
        )
        if place.rank == 0:
            click.echo(_table(rows))
            if output:
                write_rows(output, [asdict(row) for row in rows])
    except LatecomerError as error:
        fail(error, place.rank)
    leave()


def _table(rows: list[Row]) -> str:
    header = ("algorithm", "size", "delay", "time", "from", "to", "own", "bus", "against backend")
    backend = {(r.size_bytes, r.delay_us, r.seed): r.time_us for r in rows if r.algorithm == "backend"}
    return table(header, [_line(row, backend.get((row.size_bytes, row.delay_us, row.seed))) for row in rows])


def _line(row: Row, backend: float | None) -> tuple[str, ...]:
    times = [format_time(time) for time in (row.time_us, row.time_min_us, row.time_max_us, row.own_us)]
    against = f"{backend / row.time_us:.2f}x" if backend else ""
    bus = format_rate(row.busbw_gbs)
    return (row.algorithm, format_size(row.size_bytes), format_time(row.delay_us), *times, bus, against)
