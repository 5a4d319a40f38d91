"""FILE arguments: a schedule (.json) or an MSCCL program (.xml), told apart by what is in the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from latecomer.schedules.errors import InputError, LatecomerError

if TYPE_CHECKING:
    from latecomer.schedules.program import Program
    from latecomer.schedules.schedule import Schedule


class Artifact(NamedTuple):
    """The text of a FILE argument; `name` is what messages call it."""

    name: str
    text: str
    is_program: bool

    def program(self) -> Program:
        """The program in it. Raises `InputError`."""
        from latecomer.codegen import msccl_xml

        return msccl_xml.read(self.text, self.name)

    def schedule(self) -> Schedule:
        """The schedule in it. Raises `InputError`."""
        from latecomer.schedules.schedule import Schedule

        return Schedule.from_json(self.text, self.name)


def load_artifact(path: str) -> Artifact:
    """The schedule or program in the file at `path` (`-`: standard input). Raises `InputError`."""
    from latecomer.synth.sources.files import read_text

    text = read_text(path)
    name = "standard input" if path == "-" else path
    start = text.lstrip()
    if not start.startswith(("<", "{", "[")):
        raise InputError(f"{name} is neither a schedule (JSON, from `latecomer synth -o`) nor an MSCCL program (XML)")
    return Artifact(name, text, start.startswith("<"))


@contextlib.contextmanager
def said_of(file: str) -> Iterator[None]:
    """Errors within name the file that they are about (`-`: standard input)."""
    name = "standard input" if file == "-" else file
    try:
        yield
    except LatecomerError as error:
        if not str(error).startswith((f"{name}:", f"{name} ")):
            error.args = (f"{name}: {error}",)
        raise


def load_schedule(path: str, command: str) -> Schedule:
    """The schedule in the file at `path`. Raises `InputError`, naming `command` where it is a program."""
    artifact = load_artifact(path)
    if artifact.is_program:
        artifact.program()  # an XML that is no program is the more useful message
        raise InputError(
            f"{path} is a program; `latecomer {command}` takes a schedule, the JSON of `latecomer synth -o`"
        )
    return artifact.schedule()
