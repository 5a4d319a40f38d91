"""How commands speak: results on stdout, everything else on stderr, files whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from latecomer.schedules.errors import InputError

if TYPE_CHECKING:
    from latecomer.codegen.findings import Finding


def warn(message: str) -> None:
    """One warning on stderr."""
    click.echo(f"warning: {message}", err=True)


def echo_json(value: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def echo_facts(facts: Iterable[tuple[str, str]], *, err: bool = False) -> None:
    """Lines of `name   value`, values aligned; one of several lines is indented, ("", "") is a gap.

    `err`: on stderr, because stdout has the file.
    """
    facts = list(facts)
    width = max((len(name) for name, _ in facts), default=0) + 3
    for name, value in facts:
        for number, line in enumerate(value.split("\n")):
            click.echo(f"{'' if number else name:{width}}{line}".rstrip(), err=err)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns side by side: the first to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def write_file(path: str, text: str) -> None:
    """Write `text` to the file at `path`: after any failure it is what it was before.

    The text goes to a temporary name in the same directory, which then takes the place of the file. A path
    that is not a regular file (a device, a pipe) is written to directly. Raises `InputError`.
    """
    if not path or path == "-":
        raise InputError(f"{path!r} names no file here; ./- would be a file called -")
    data = text.encode()
    path_now = os.path.realpath(path)
    temporary = os.path.join(os.path.dirname(path_now), f".{os.path.basename(path_now)}.{os.getpid()}.tmp")
    try:
        if os.path.isdir(path_now):
            raise InputError(f"cannot write {path}: it is a directory; name a file in it")
        # Replacing a file needs no right to write to it, and root may do anything: the mode is what somebody meant.
        if os.path.isfile(path_now) and not os.stat(path_now).st_mode & 0o222:
            raise InputError(f"cannot write {path}: {path_now} is read-only")
        if os.path.exists(path_now) and not os.path.isfile(path_now):
            with open(path_now, "wb") as device:
                device.write(data)
            return
        try:
            with open(temporary, "xb") as file:
                file.write(data)
            os.replace(temporary, path_now)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot write {path}: {reason}") from error


def keep_input(file: str, output: str | None) -> None:
    """Raises `InputError` where writing `output` would overwrite `file`, what is read."""
    if output is not None and os.path.exists(output) and os.path.exists(file) and os.path.samefile(file, output):
        raise InputError(f"{output} is the file that is read, which would be lost; name another one")


def write_sarif(path: str, findings: Sequence[Finding]) -> None:
    """Write findings as a SARIF log to the file at `path`. Raises `InputError`."""
    from latecomer.codegen.sarif import sarif

    write_file(path, json.dumps(sarif(findings), indent=2) + "\n")


@contextlib.contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Says on stderr that something is going on while it is, and which part, if a person is looking.

    Gives a function that takes the name of the part.
    """
    if not sys.stderr.isatty():
        yield lambda part: None
        return

    def show(part: str) -> None:
        sys.stderr.write(f"\r\x1b[K{what} … {part}")
        sys.stderr.flush()

    show("")
    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
