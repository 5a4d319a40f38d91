"""Files that the executor runs: schedules (JSON) and MSCCL programs (XML), told apart by what is in them."""

from __future__ import annotations

from pathlib import Path

from latecomer.runtime.plan import Plan
from latecomer.runtime.program_plan import ProgramPlan
from latecomer.schedules.errors import InputError
from latecomer.schedules.schedule import Schedule


def load_plan(path: str) -> Plan | ProgramPlan:
    """The proven plan in the file at `path`. Raises `InputError`, and what proving it raises."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if text.lstrip().startswith("<"):
        from latecomer.codegen import msccl_xml

        return ProgramPlan(msccl_xml.read(text, path))
    return Plan(Schedule.from_json(text, path))
