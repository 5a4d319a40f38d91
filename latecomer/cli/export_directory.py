"""`latecomer export DIRECTORY`: a plan set becomes a directory of XML files, one per range of sizes."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from latecomer.cli.artifacts import load_schedule, said_of
from latecomer.cli.output import write_file
from latecomer.schedules.errors import InputError, LimitExceeded

if TYPE_CHECKING:
    from latecomer.codegen.targets import Target
    from latecomer.schedules.program import Program

_NAME = re.compile(r"(\d+)-(\d+)-.+\.json")


def export_directory(plans: str, output: str | None, goal: Target, in_place: bool) -> list[tuple[str, Program]]:
    """(file, program) per plan of the directory `plans`, as `latecomer synth --sizes` wrote it.

    The runtimes read every file of a directory, in the order of names: `output` must be empty or not there yet.
    All plans are compiled and proven before the first file is written. Raises `InputError`.
    """
    from latecomer.codegen.compile import compile_schedule
    from latecomer.codegen.lint import MAX_FILES
    from latecomer.codegen.lower import Options

    names = sorted(name for name in os.listdir(plans) if _NAME.fullmatch(name))
    if not names:
        raise InputError(f"{plans} holds no plans; make them with latecomer synth --sizes 1KiB..1GiB -o {plans}")
    if output in (None, "-"):
        raise InputError("a plan set becomes a directory: name it with -o DIR")
    if os.path.exists(output) and (not os.path.isdir(output) or os.listdir(output)):
        raise InputError(f"{output} is not an empty directory; a runtime reads every file in it, so name a new one")
    most = MAX_FILES.get(goal.name, min(MAX_FILES.values()))
    if len(names) > most:
        raise LimitExceeded(f"{len(names)} plans; {goal.name} loads {most} files. Take a smaller range of sizes",
                            limit="files")
    made = []
    before = 0
    for name in names:
        match = _NAME.fullmatch(name)
        assert match is not None
        low, high = int(match[1]), int(match[2])
        if low <= before:
            raise InputError(f"{plans}: {name} begins at {low} bytes, below {before}, where the plan before it ends; "
                             "these are plans of several sets, and a runtime would take the first that fits")
        before = high
        options = Options(in_place=in_place, out_of_place=not in_place, min_bytes=low, max_bytes=high)
        plan = os.path.join(plans, name)
        schedule = load_schedule(plan, "export")
        with said_of(plan):
            program, text = compile_schedule(schedule, goal.name, options)
        made.append((os.path.join(output, name.removesuffix(".json") + ".xml"), program, text))
    os.makedirs(output, exist_ok=True)
    for path, _, text in made:
        write_file(path, text)
    return [(path, program) for path, program, _ in made]
