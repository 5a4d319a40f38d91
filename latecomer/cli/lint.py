"""`latecomer lint FILE…`: will this runtime pick this file for this call?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from latecomer.cli.options import reads
from latecomer.cli.output import echo_facts, echo_json, keep_input, write_file, write_sarif
from latecomer.schedules.errors import IncorrectProgram, InputError
from latecomer.schedules.units import parse_size

if TYPE_CHECKING:
    from latecomer.codegen.lint import Answer

COLLECTIVES = ("allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast", "reduce")


@click.command("lint")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--target", required=True, metavar="T", help="msccl-executor, msccl, rccl or portable.")
@click.option("--size", required=True, metavar="SIZE", callback=reads(parse_size), help="Bytes of the whole message.")
@click.option("--ngpus", required=True, type=click.IntRange(min=1), help="Ranks of the communicator.")
@click.option("--element-bytes", type=click.IntRange(1, 16), default=4, show_default=True, help="Bytes of an element.")
@click.option("--out-of-place", is_flag=True, help="The call has different send and receive buffers.")
@click.option("--collective", type=click.Choice(COLLECTIVES), default="allreduce", show_default=True)
@click.option("--fix", metavar="OUT", help="Write a copy without the mechanical faults to OUT (one FILE).")
@click.option("--sarif", metavar="OUT", help="Write the findings as SARIF 2.1.0 to OUT too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[Path, ...],
    target: str,
    size: int,
    ngpus: int,
    element_bytes: int,
    out_of_place: bool,
    collective: str,
    fix: str | None,
    sarif: str | None,
    as_json: bool,
) -> None:
    """Say whether runtime T runs each FILE for a call of SIZE bytes on NGPUS ranks, or every reason why not.

    Runtimes that do not pick a file say nothing and run something else. A directory is judged as a runtime reads
    it: all that is in it. Exits 0 when every FILE would be run, and a file of every directory. Whether the result
    is right is another question: latecomer check.

    \b
      latecomer lint plan.xml --target msccl-executor --size 64MiB --ngpus 8
    """
    from latecomer.codegen.lint import STATE, lint, lint_text, text_of
    from latecomer.codegen.lint import fix as repair
    from latecomer.codegen.serves import Call
    from latecomer.codegen.targets import target as named

    call = Call(size, ngpus, element_bytes, not out_of_place, collective)
    goal = named(target)
    if fix is not None and len(files) == 1:
        keep_input(str(files[0]), fix)
    judged: list[tuple[Path, list[Answer]]] = [(file, lint([file], call, target)) for file in files]
    repaired: list[str] = []
    if fix is not None:
        if len(files) != 1 or files[0].is_dir():
            raise InputError("--fix repairs one file at a time; name one FILE")
        text, mended = repair(text_of(files[0]), str(files[0]), target)
        write_file(fix, text)
        repaired = [str(finding) for finding in mended]
        judged = [(Path(fix), [lint_text(text, fix, call, goal)])]
    answers = [answer for _, of_path in judged for answer in of_path]
    if sarif is not None:
        write_sarif(sarif, [finding for answer in answers for finding in answer.findings])
    # Of a directory one file serves the call; the others are for other calls.
    picked = all(any(answer.picked for answer in of_path) for _, of_path in judged)
    if as_json:
        shown = [
            {"file": a.file, "picked": a.picked, "findings": [f.to_dict() for f in a.findings]} for a in answers
        ]
        echo_json({"target": target, "picked": picked, "files": shown, "repaired": repaired})
    else:
        for line in repaired:
            click.echo(f"repaired {line}")
        if fix is not None:
            click.echo(f"wrote {fix}" + ("" if repaired else ", in which nothing had to be repaired"))
        for path, of_path in judged:
            _say(path, of_path, target)
        if picked:
            click.echo("note: whether the result is right is not judged here; latecomer check proves it")
        click.echo(f"note: {STATE[target]}" if target in STATE else "note: portable files are judged for all runtimes")
    if not picked:
        ctx.exit(IncorrectProgram.exit_code)


def _say(path: Path, answers: Sequence[Answer], target: str) -> None:
    """The verdict on a path, and on each file where it is a directory."""
    if path.is_dir():
        echo_facts([(str(path), f"{_of_directory(answers, target)} for this call")])
    for answer in answers:
        sure = f"yes, {target} runs it" if answer.picked else f"no, {target} does not run it"
        verdict = f"uncertain, {target} may run it" if answer.perhaps else sure
        echo_facts([(answer.file, f"{verdict} for this call")])
        for finding in answer.findings:
            click.echo(f"  {finding}")


def _of_directory(answers: Sequence[Answer], target: str) -> str:
    chosen = next((answer.file for answer in answers if answer.picked), None)
    if chosen is not None:
        return f"yes, {target} runs {chosen}"
    if any(answer.perhaps for answer in answers):
        return f"uncertain, of several files that serve it {target} may run any"
    return f"no, {target} runs none of it"
