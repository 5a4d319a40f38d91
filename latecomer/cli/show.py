"""`latecomer show FILE`: the table."""

from __future__ import annotations

import click

from latecomer.cli.artifacts import load_artifact
from latecomer.cli.output import write_file


@click.command("show")
@click.argument("file")
@click.option("-o", "--output", metavar="OUT", help="Write the table to OUT.")
def command(file: str, output: str | None) -> None:
    """The schedule (.json) or program (.xml) in FILE as a table."""
    text = str(load_artifact(file)).rstrip("\n") + "\n"
    if output:
        write_file(output, text)
        click.echo(f"wrote {output}")
    else:
        click.echo(text, nl=False)
