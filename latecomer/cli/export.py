"""`latecomer export plan.json --to TARGET`: a schedule becomes a file that a runtime loads."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import click

from latecomer.cli.artifacts import load_schedule, said_of
from latecomer.cli.export_directory import export_directory
from latecomer.cli.options import output_option, parse_sizes, reads
from latecomer.cli.output import echo_facts, keep_input, warn, working, write_file
from latecomer.schedules.units import count, format_size, format_size_exactly, parse_size

if TYPE_CHECKING:
    from latecomer.codegen.lower import Options
    from latecomer.schedules.program import Program
    from latecomer.schedules.schedule import Schedule

_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2}
"""What the message's divisibility is told for: the usual gradients."""


@click.command("export")
@click.argument("file")
@click.option("--to", required=True, metavar="TARGET", help="msccl-executor, msccl, rccl, portable, or nccl.")
@click.option("--in-place", "placement", flag_value="in", default=True, help="Serve in-place calls. [default]")
@click.option("--out-of-place", "placement", flag_value="out", help="Serve out-of-place calls instead.")
@click.option("--min-bytes", metavar="SIZE", callback=reads(parse_size), help="Smallest message it serves. [0]")
@click.option("--max-bytes", metavar="SIZE", callback=reads(parse_size), help="Largest message it serves. [1GiB]")
@click.option(
    "--for-sizes",
    metavar="LOW..HIGH",
    callback=reads(parse_sizes),
    help="Cut the chunks so that the powers of two in this range, and its ends, divide (float32).",
)
@output_option("Write to OUT instead of standard output; nccl: a directory.")
def command(
    file: str, to: str, placement: str, min_bytes: int | None, max_bytes: int | None,
    for_sizes: tuple[int, int] | None, output: str | None
) -> None:
    """Compile the schedule in FILE into an MSCCL XML for TARGET, or (nccl) into a CUDA/NCCL project.

    The schedule is proven before, and an XML is read back and proven again, on all ranks, after.

    \b
      latecomer export plan.json --to msccl-executor -o plan.xml
      latecomer export plan.json --to nccl -o project
    """
    from latecomer.codegen.compile import compile_schedule
    from latecomer.codegen.targets import LOADING, TARGETS, target

    if to == "nccl":
        if min_bytes is not None or max_bytes is not None or placement != "in":
            raise click.UsageError(
                "a CUDA/NCCL project serves every size and placement: drop the options that limit it"
            )
        if output in (None, "-"):
            raise click.UsageError("a CUDA/NCCL project is a directory: name it with -o DIR")
        _export_project(load_schedule(file, "export"), file, output)
        return
    if to not in TARGETS:
        raise click.UsageError(f"no target is called {to!r}; there are {', '.join(sorted(TARGETS))}, and nccl")
    goal = target(to)
    if os.path.isdir(file):
        if min_bytes is not None or max_bytes is not None or for_sizes is not None:
            raise click.UsageError("the plans of a set have their own sizes: drop the options that give some")
        with working("compiling and proving"):
            files = export_directory(file, output, goal, placement == "in")
        echo_facts([("wrote", f"{count(len(files), 'file')} to {output} for {goal.name}, each read back and proven"),
                    *((os.path.basename(path), _serves(program)) for path, program in files),
                    ("load", LOADING[goal.name])])
        return
    keep_input(file, output)
    schedule = load_schedule(file, "export")
    if for_sizes is not None:
        from latecomer.codegen.divide import fitting

        schedule = fitting(schedule, *for_sizes, max(_ELEMENT_BYTES.values()))
        min_bytes, max_bytes = min_bytes or for_sizes[0], max_bytes or for_sizes[1]
    options = _options(schedule, placement, min_bytes, max_bytes)
    with working("compiling and proving"), said_of(file):
        program, text = compile_schedule(schedule, goal.name, options)
    for message in _unserved(schedule, program):
        warn(message)
    if output in (None, "-"):
        click.echo(text, nl=False)
        return
    write_file(output, text)
    echo_facts(
        [
            ("wrote", f"{output} for {goal.name}, read back and proven on all {program.ranks} ranks"),
            ("program", _shape(program)),
            ("serves", _serves(program)),
            ("load", LOADING[goal.name]),
            ("next", f"latecomer check {output} --target {goal.name}"),
        ]
    )


def _export_project(schedule: Schedule, file: str, directory: str) -> None:
    """Prove the schedule and write its CUDA/NCCL project, with the baselines that serve its number of ranks."""
    from latecomer.codegen.nccl_program import summary, write_project
    from latecomer.schedules.check import check
    from latecomer.schedules.errors import NotApplicable
    from latecomer.synth.algorithms import ring, stragglar

    with said_of(file):
        check(schedule)
    baselines = {"ring": ring.schedule(schedule.ranks, None)}
    with contextlib.suppress(NotApplicable):
        baselines["stragglar"] = stragglar.schedule(schedule.ranks, None)
    files = write_project(schedule, directory, baselines=baselines)
    echo_facts(
        [
            ("wrote", f"{count(len(files), 'file')} to {directory}: {summary(schedule)}"),
            ("beside it", f"{' and '.join(baselines)} for the benchmark"),
            ("next", f"{directory}/README.md says how to build and run it"),
        ]
    )


def _options(schedule: Schedule, placement: str, min_bytes: int | None, max_bytes: int | None) -> Options:
    from latecomer.codegen.lower import LARGEST_BYTES, Options

    planned_for = schedule.certificate.size_bytes if schedule.certificate else 0
    low, high = min_bytes or 0, max_bytes or max(LARGEST_BYTES, planned_for)
    if low > high:
        smaller, larger = format_size_exactly(low), format_size_exactly(high)
        default = "" if max_bytes else ", which holds without one"
        raise click.UsageError(f"--min-bytes {smaller} is above --max-bytes {larger}{default}: no message is served")
    return Options(in_place=placement == "in", out_of_place=placement == "out", min_bytes=low, max_bytes=high)


def _shape(program: Program) -> str:
    blocks = max(len(gpu.threadblocks) for gpu in program.gpus)
    steps = max(len(block.steps) for gpu in program.gpus for block in gpu.threadblocks)
    scratch = max(gpu.s_chunks for gpu in program.gpus)
    return (
        f"{count(program.ranks, 'gpu')}, at most {count(blocks, 'threadblock')} on one, "
        f"{count(program.channels, 'channel')}, at most {count(steps, 'step')} in a threadblock, "
        f"{scratch} of {count(program.chunks, 'chunk')} of scratch"
    )


def _serves(program: Program) -> str:
    calls = "in-place" if program.in_place else "out-of-place"
    least = f"{format_size(program.min_bytes)} … " if program.min_bytes else "up to "
    most = format_size(program.max_bytes or 0)
    return f"{calls} AllReduce of {least}{most} whose element count is a multiple of {program.chunks}"


def _unserved(schedule: Schedule, program: Program) -> list[str]:
    """Runtimes do not pick a file for a count its chunks do not divide, and say nothing: so we do."""
    if schedule.certificate is None:
        return []
    size = schedule.certificate.size_bytes
    for name, width in _ELEMENT_BYTES.items():
        if size % width or size // width % program.chunks:
            return [
                f"{format_size(size)} of {name} is not served: {size / width:,.10g} elements are not a multiple of "
                f"{program.chunks}, and a runtime then silently runs something else; see --chunks of latecomer synth"
            ]
    return []
