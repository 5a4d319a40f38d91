"""FILE arguments: a schedule (.json) or an MSCCL program (.xml), told apart by what is in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latecomer.schedules.errors import InputError

if TYPE_CHECKING:
    from latecomer.schedules.program import Program
    from latecomer.schedules.schedule import Schedule


def load_artifact(path: str) -> Schedule | Program:
    """The schedule or program in the file at `path` (`-`: standard input). Raises `InputError`."""
    from latecomer.synth.sources.files import read_text

    text = read_text(path)
    name = "standard input" if path == "-" else path
    start = text.lstrip()
    if start.startswith("<"):
        from latecomer.codegen import msccl_xml

        return msccl_xml.read(text, name)
    if start.startswith(("{", "[")):
        from latecomer.schedules.schedule import Schedule

        return Schedule.from_json(text, name)
    raise InputError(f"{name} is neither a schedule (JSON, from `latecomer synth -o`) nor an MSCCL program (XML)")


def load_schedule(path: str, command: str) -> Schedule:
    """The schedule in the file at `path`. Raises `InputError`, naming `command` where it is a program."""
    from latecomer.schedules.schedule import Schedule

    artifact = load_artifact(path)
    if not isinstance(artifact, Schedule):
        raise InputError(
            f"{path} is a program; `latecomer {command}` takes a schedule, the JSON of `latecomer synth -o`"
        )
    return artifact
