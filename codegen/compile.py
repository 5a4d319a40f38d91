"""A schedule → the file that a runtime loads, proven at both ends."""

from __future__ import annotations

from latecomer.codegen import msccl_xml
from latecomer.codegen.lower import Options, lower
from latecomer.codegen.verify import verify
from latecomer.schedules.check import check
from latecomer.schedules.errors import IncorrectProgram
from latecomer.schedules.program import Program
from latecomer.schedules.schedule import Schedule


def compile_schedule(schedule: Schedule, to: str, options: Options) -> tuple[Program, str]:
    """(program, file) for the target `to`; the schedule is checked, the file read back and proven.

    Raises `IncorrectSchedule`, `LimitExceeded` and `InputError`; `IncorrectProgram` only where the compiler has a
    fault.
    """
    check(schedule)
    program = lower(schedule, to, options)
    text = msccl_xml.write(program, to)
    again = msccl_xml.read(text, "the written file")
    if again != program:
        raise IncorrectProgram("the written file does not read back as the program; please report this")
    verify(again, to)
    return program, text
