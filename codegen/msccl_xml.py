"""MSCCL XML: `write(program)` and `read(text)`."""

from __future__ import annotations

from latecomer.codegen.msccl_reader import read, read_with_notes
from latecomer.codegen.targets import Target, target
from latecomer.schedules.errors import InputError
from latecomer.schedules.program import Program, Step, Threadblock

__all__ = ["read", "read_with_notes", "write"]


def write(program: Program, to: str | Target = "msccl-executor") -> str:
    """The file for the target called `to`: one tag a line, double quotes, spaces only, no declaration.

    `read(write(p)) == p` for every program. Raises `InputError` where the target has no spelling for the
    collective. O(steps).
    """
    goal = target(to) if isinstance(to, str) else to
    root = {
        "name": program.name, "proto": program.protocol, "nchannels": program.channels,
        "nchunksperloop": program.chunks, "ngpus": program.ranks, "coll": _spelling(program, goal),
        "inplace": _flag(program.in_place), "outofplace": _flag(program.out_of_place),
        "minBytes": program.min_bytes, "maxBytes": program.max_bytes,
    }
    attributes = " ".join(f'{key}="{value}"' for key, value in root.items() if value is not None)
    lines = [f"<algo {attributes}>"]
    for gpu in program.gpus:
        lines.append(f'  <gpu id="{gpu.id}" i_chunks="{gpu.i_chunks}" o_chunks="{gpu.o_chunks}" '
                     f's_chunks="{gpu.s_chunks}">')
        for block in gpu.threadblocks:
            lines += _threadblock(block)
        lines.append("  </gpu>")
    lines.append("</algo>")
    return "\n".join(lines) + "\n"


def _spelling(program: Program, goal: Target) -> str:
    if program.collective != "reduce_scatter":
        return program.collective
    if goal.reduce_scatter is None:
        raise InputError("no one file holds a ReduceScatter for all runtimes: they spell it differently; "
                         "export one for msccl and one for msccl-executor")
    return goal.reduce_scatter


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _threadblock(block: Threadblock) -> list[str]:
    lines = [f'    <tb id="{block.id}" send="{block.send}" recv="{block.recv}" chan="{block.chan}">']
    lines += [_step(s, step) for s, step in enumerate(block.steps)]
    lines.append("    </tb>")
    return lines


def _step(s: int, step: Step) -> str:
    kind, srcbuf, srcoff, dstbuf, dstoff, cnt, depid, deps, hasdep = step
    return (f'      <step s="{s}" type="{kind}" srcbuf="{srcbuf}" srcoff="{srcoff}" dstbuf="{dstbuf}" '
            f'dstoff="{dstoff}" cnt="{cnt}" depid="{depid}" deps="{deps}" hasdep="{hasdep}"/>')
