"""`Schedule` → a CUDA/NCCL project: source, table of steps, benchmark, build files, all of them text.

The source is the same for every plan; what differs is the table. NCCL's point-to-point calls and one stream are all
it needs (NCCL 2.13 or newer; user guide, "Point-to-point communication").
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

from latecomer import __version__
from latecomer.codegen.nccl_loops import Loop, fold
from latecomer.codegen.nccl_table import INPUT, OUTPUT, Spot, Step, Table, lower
from latecomer.schedules.errors import InputError
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.units import count

WIDTH: Final = 118
"""Longest line of a table."""


class _Type(NamedTuple):
    nccl: str
    c: str
    floating: bool


TYPES: Final = (
    _Type("ncclFloat", "float", True),
    _Type("ncclDouble", "double", True),
    _Type("ncclHalf", "__half", True),
    _Type("ncclBfloat16", "__nv_bfloat16", True),
    _Type("ncclInt32", "int32_t", False),
    _Type("ncclInt64", "int64_t", False),
)

FIXED: Final = {
    "latecomer_allreduce.h": "nccl_header.h.j2",
    "latecomer_table.h": "nccl_table.h.j2",
    "kernels.h": "nccl_kernels.h.j2",
    "allreduce.cu": "nccl_allreduce.cu.j2",
    "main.cu": "nccl_main.cu.j2",
    "check.h": "nccl_check.h.j2",
    "rendezvous.h": "nccl_rendezvous.h.j2",
}
"""File of the project → its template, for what does not depend on the plan."""


def write_project(
    schedule: Schedule, directory: str | Path, *, baselines: Mapping[str, Schedule] | None = None
) -> list[Path]:
    """Write the project of `schedule` to `directory` (made where missing); the files written, in order of name.

    `baselines`: other schedules of as many ranks for the benchmark to measure, by name (letters, digits, underscores).
    Raises `InputError` as `project` does, and where the directory cannot be written.
    """
    root = Path(directory)
    files = project(schedule, baselines=baselines)
    try:
        root.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (root / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the project to {root}: {error.strerror}") from error
    return [root / name for name in files]


def project(schedule: Schedule, *, baselines: Mapping[str, Schedule] | None = None) -> dict[str, str]:
    """Name → text of every file, sorted by name; the same schedule gives the same bytes.

    Raises `InputError` for what no program can be made of (see `nccl_table.lower`), and for a baseline of another
    number of ranks.
    """
    others = dict(baselines or {})
    for name, other in others.items():
        if other.ranks != schedule.ranks:
            raise InputError(f"baseline {name} is for {other.ranks} ranks, the plan for {schedule.ranks}")
        if not name.isidentifier():
            raise InputError(f"a baseline's name must be letters, digits and underscores, not {name!r}")
    files = {"plan_table.cpp": table_source(lower(schedule), "latecomer_plan", "plan", summary(schedule))}
    for name, other in others.items():
        symbol = f"latecomer_{name}"
        files[f"{name}_table.cpp"] = table_source(lower(other), symbol, name, summary(other))
    files["baselines.cpp"] = _render("nccl_baselines.cpp.j2", symbols=[f"latecomer_{name}" for name in others])
    files |= fixed_files()
    values = {"n": schedule.ranks, "summary": summary(schedule), "names": list(others), "version": __version__}
    files["CMakeLists.txt"] = _render("nccl_CMakeLists.txt.j2", **values)
    files["README.md"] = _render("nccl_README.md.j2", **values)
    return dict(sorted(files.items()))


def fixed_files() -> dict[str, str]:
    """The files that are the same for every plan."""
    return {name: _render(template, version=__version__, types=TYPES) for name, template in FIXED.items()}


def summary(schedule: Schedule) -> str:
    """One line about a schedule."""
    late = [schedule.binding[role] for role in schedule.late_roles]
    who = f", late: rank {', '.join(map(str, late))}" if late else ""
    chunks = count(len(schedule.chunks), "chunk")
    return f"{schedule.provenance.algorithm}, {schedule.ranks} ranks{who}, {chunks}"


def table_source(table: Table, symbol: str, name: str, summary: str) -> str:
    """The C++ source that defines `symbol` as `table`."""
    rows: list[str] = []
    loops: list[str] = []
    ranks: list[str] = []
    position = 0
    for number, rank in enumerate(table.ranks):
        first = len(loops)
        for loop in fold(rank.rounds):
            steps = list(_steps(loop))
            rows.append(f"  // rank {number}{' (late)' if number == table.late else ''}: {_about(loop)}")
            rows += _filled(steps)
            loops.append(f"  {{{position}, {position + len(steps)}, {loop.times}, {loop.stride}}},")
            position += len(steps)
        ranks.append(f"  {{{first}, {len(loops)}, {rank.slots}, {rank.slot_weight}}},")
    uniform = set(table.weights) == {1}
    return _render(
        "nccl_steps.cpp.j2",
        title=f"Steps of {name}.",
        summary=summary,
        symbol=symbol,
        name=name,
        n=len(table.ranks),
        chunks=len(table.weights),
        late=-1 if table.late is None else table.late,
        total=sum(table.weights),
        rows=rows,
        loops=_filled([line.strip().rstrip(",") for line in loops]),
        ranks=_filled([line.strip().rstrip(",") for line in ranks]),
        ends=None if uniform else _filled([str(end) for end in accumulate(table.weights, initial=0)]),
    )


def _about(loop: Loop) -> str:
    number = len(loop.rounds)
    rounds = f"round {loop.rounds[0].number}" if number == 1 else f"{number} rounds from {loop.rounds[0].number} on"
    if loop.times == 1:
        return rounds
    return f"{rounds}, {loop.times} times, each time {loop.stride:+d} chunks"


def _steps(loop: Loop) -> Iterator[str]:
    for round in loop.rounds:
        yield from map(_step, (*round.moves, *round.local))
        yield "ROUND"


def _step(step: Step) -> str:
    places = ", ".join(_spot(spot) for spot in (step.src, step.other, step.dst) if spot is not None)
    size = f"{step.chunk}, {step.length}, {places}"
    if step.kind in ("send", "receive"):
        return f"{'SEND' if step.kind == 'send' else 'RECV'}({step.peer}, {size})"
    return f"{step.kind.upper()}({size})"


def _spot(spot: Spot) -> str:
    if spot.buffer == INPUT:
        return "IN"
    if spot.buffer == OUTPUT:
        return "OUT"
    return f"slot({spot.buffer}, {spot.skip})" if spot.skip else f"slot({spot.buffer})"


def _filled(items: Sequence[str]) -> list[str]:
    """The items, a comma behind each, in lines of up to `WIDTH`; no item is cut."""
    text = " ".join(item.replace(" ", "\0") + "," for item in items)
    lines = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    return ["  " + line.replace("\0", " ") for line in lines]


def _render(template: str, **values: Any) -> str:
    return str(_environment().get_template(template).render(**values))


@cache
def _environment() -> Any:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("latecomer.codegen", "templates"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=False,
        autoescape=False,
    )
