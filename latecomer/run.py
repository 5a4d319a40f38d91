"""Run a plan under torchrun, check every element of the result, and print times.

    torchrun --nproc-per-node 8 -m latecomer.run plan.json --size 64MiB --late 3 --delay 50ms
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import click

from latecomer.cli.options import reads
from latecomer.cli.running import backend_option, timeout_option
from latecomer.schedules.errors import InputError, LatecomerError
from latecomer.schedules.units import format_rate, format_size, format_time, parse_size, parse_time

_TYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("file")
@click.option("--size", callback=reads(parse_size), default="64MiB", metavar="SIZE", help="Message per rank. [64MiB]")
@click.option("--dtype", type=click.Choice(_TYPES), default="float32", help="Element type. [float32]")
@click.option("--late", type=click.IntRange(0), metavar="RANK",
              help="The rank to be late. [the plan's; a program does not say]")
@click.option("--delay", callback=reads(parse_time), default="0", metavar="TIME", help="How late it is. [0]")
@click.option("--runs", type=click.IntRange(1), default=5, help="Timed runs. [5]")
@timeout_option
@backend_option
@click.option("--transport", type=click.Choice(("torch", "nccl4py")), default="torch",
              help="What carries the messages; nccl4py: NCCL without torch.distributed. [torch]")  # fmt: skip
def command(
    file: str, size: int, dtype: str, late: int | None, delay: float, runs: int, timeout_s: float | None,
    backend: str | None, transport: str,
) -> None:  # fmt: skip
    """Run the plan in FILE (the JSON of `latecomer synth -o`, or an MSCCL program) and check it.

    The data is random and every element of every run is compared with a float64 reference.

    \b
      torchrun --nproc-per-node 8 -m latecomer.run plan.json --size 64MiB --late 3 --delay 50ms
    """
    from latecomer.runtime.launch import fail, join, leave

    try:
        place = join(backend, timeout_s or 1800.0, "latecomer.run plan.json")
    except LatecomerError as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(error.exit_code) from error
    try:
        _run(file, size, dtype, late, delay, runs, timeout_s, place, transport)
    except LatecomerError as error:
        fail(error, place.rank)
    leave()


def _run(
    file: str, size: int, dtype: str, late: int | None, delay_us: float, runs: int, timeout_s: float | None, place: Any,
    transport: str,
) -> None:  # fmt: skip
    import torch

    from latecomer.runtime import data
    from latecomer.runtime.bench import gather_times, saying_who, start_together
    from latecomer.runtime.executor import Executor
    from latecomer.runtime.launch import require_room, transport_of
    from latecomer.runtime.plan_files import load_plan

    rank, ranks = place.rank, place.ranks
    plan = load_plan(file)
    if plan.ranks != ranks:
        raise InputError(f"the plan is for {plan.ranks} ranks, and torchrun started {ranks} processes")
    late = _late(plan, late, delay_us, ranks)
    kind: torch.dtype = getattr(torch, dtype)
    elements = max(1, size // kind.itemsize)
    require_room(elements)
    executor = Executor(plan, transport_of(transport, place), timeout_s=timeout_s)
    scale = 1 if kind.is_floating_point else 128  # whole numbers for whole types
    own = torch.from_numpy(data.contribution(elements, 0, rank) * scale).to(device=place.device, dtype=kind)
    wanted = data.reference(elements, 0, ranks) * scale
    times = []
    for run in range(runs + 1):  # the first makes connections
        buffer = own.clone()
        with saying_who(executor):
            start_together(delay_us if rank == late else 0.0, place.device)
            arrived = time.monotonic()
            executor.all_reduce(buffer)
            if place.device != "cpu":
                torch.cuda.synchronize()
            done = time.monotonic()
            data.compare(buffer.cpu().to(torch.float64).numpy(), wanted, ranks, dtype)
            every = gather_times(arrived, done, ranks)
        if run:
            times.append(float(every[:, 1].max() - every[:, 0].max()) * 1e6)
    executor.close()
    if rank == 0:
        middle = statistics.median(times)
        bus = 2 * (ranks - 1) / ranks * size / middle / 1e3
        who = f"rank {late} arrives {format_time(delay_us)} after the others" if delay_us else "all arrive together"
        print(f"{plan.name}, {ranks} ranks, {format_size(size)} of {dtype}; {who}")
        print(f"every element right on every rank in {runs + 1} runs")
        print(
            f"time after the last arrival: median {format_time(middle)} "
            f"({format_time(min(times))} … {format_time(max(times))}), bus bandwidth {format_rate(bus)}"
        )
        if executor.cut is not None:
            print(f"the last run had time for {executor.cut} of {len(plan.cuts) - 1} rounds of pre-work")


def _late(plan: Any, late: int | None, delay_us: float, ranks: int) -> int | None:
    if late is None:
        late = plan.late_rank
    if delay_us and late is None:
        raise InputError(f"a delay of {format_time(delay_us)}, but the plan names no late rank; add --late RANK")
    if late is not None and not 0 <= late < ranks:
        raise InputError(f"late rank {late} is out of range: ranks are 0 … {ranks - 1}")
    return late


if __name__ == "__main__":
    command(prog_name="torchrun -m latecomer.run")
