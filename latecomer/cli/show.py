"""`latecomer show FILE`: the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from latecomer.cli.artifacts import load_artifact
from latecomer.cli.options import output_option
from latecomer.cli.output import keep_input, write_file
from latecomer.schedules.units import count

if TYPE_CHECKING:
    from latecomer.schedules.program import Program, Step, Threadblock


@click.command("show")
@click.argument("file")
@output_option("Write the table to OUT.")
def command(file: str, output: str | None) -> None:
    """The schedule (.json) or program (.xml) in FILE as a table."""
    keep_input(file, output)
    artifact = load_artifact(file)
    table = program_table(artifact.program()) if artifact.is_program else str(artifact.schedule())
    text = table.rstrip("\n") + "\n"
    if output not in (None, "-"):
        write_file(output, text)
        click.echo(f"wrote {output}")
    else:
        click.echo(text, nl=False)


def program_table(program: Program) -> str:
    """A line per step, with what it waits for and whether it tells that it is done."""
    calls = [word for word, served in (("in", program.in_place), ("out of", program.out_of_place)) if served]
    lines = [
        f"{program.name or 'no name'}: {program.collective}, {count(program.ranks, 'rank')}, "
        f"{count(program.chunks, 'chunk')}, {count(program.channels, 'channel')}, {program.protocol}, "
        f"{' and '.join(calls) or 'neither in nor out of'} place"
    ]
    for gpu in program.gpus:
        lines += ["", f"gpu {gpu.id}: chunks: input {gpu.i_chunks}, output {gpu.o_chunks}, scratch {gpu.s_chunks}"]
        for block in gpu.threadblocks:
            lines.append(f"  tb {block.id}: {_ends(block)}")
            lines += [f"    {number:3}  {_step(step)}" for number, step in enumerate(block.steps)]
    return "\n".join(lines)


def _ends(block: Threadblock) -> str:
    ends = [f"{verb} {peer}" for verb, peer in (("sends to", block.send), ("receives from", block.recv)) if peer >= 0]
    return f"{', '.join(ends) or 'local'}, channel {block.chan}"


def _step(step: Step) -> str:
    from latecomer.schedules.program import READS_SRC, RECEIVES, WRITES_DST

    src = f"{step.srcbuf}[{step.srcoff}]" if step.type in READS_SRC else ""
    dst = f"{step.dstbuf}[{step.dstoff}]" if step.type in WRITES_DST else ""
    arrow = "→" if dst and (src or step.type in RECEIVES) else ""
    count = f"x{step.cnt}" if step.type != "nop" else ""
    wait = f"after tb {step.depid} step {step.deps}" if step.depid >= 0 else ""
    return f"{step.type:4} {src:>7} {arrow:1} {dst:7} {count:4} {wait:20} {'posts' if step.hasdep else ''}".rstrip()
