"""Which calls a program serves: sizes, counts, in place or not. Runtimes check this silently; here it is said."""

from __future__ import annotations

from dataclasses import dataclass

from latecomer.codegen.targets import TARGETS, Target
from latecomer.schedules.program import Program
from latecomer.schedules.units import count, format_size, format_size_exactly

DEFAULT_MAX_BYTES = 2**27
"""What microsoft/msccl takes where a file has no maxBytes (exclusive)."""


@dataclass(frozen=True)
class Call:
    """A collective call: message size as the runtimes count it (the whole buffer), and the element's size, in bytes."""

    size_bytes: int
    ranks: int
    element_bytes: int = 4
    in_place: bool = True
    collective: str = "allreduce"


def size_range(program: Program, goal: Target) -> tuple[int, int | None]:
    """(smallest, greatest) message in bytes the file is picked for, both included; None: no limit."""
    low, high = program.min_bytes or 0, program.max_bytes
    if goal.max_bytes_exclusive:
        return low, (DEFAULT_MAX_BYTES if high is None else high) - 1
    return low, high or None


def placements(program: Program, goal: Target | None) -> list[bool]:
    """Of in place (True) and out of place (False), the calls that may run the program on `goal` (None: on any)."""
    if goal is TARGETS["msccl"]:
        return [bool(program.in_place)]  # of the two flags it reads this one alone
    served = [in_place for in_place, on in ((True, program.in_place), (False, program.out_of_place)) if on]
    return served or [bool(program.in_place)]


def serves(program: Program, goal: Target) -> str:
    """One sentence: the calls that will run this program on `goal`."""
    low, high = size_range(program, goal)
    places = [name for name, on in (("in-place", program.in_place), ("out-of-place", program.out_of_place)) if on]
    sizes = f"{format_size(low)} … {format_size(high)}" if high is not None else f"{format_size(low)} and more"
    return (f"{' and '.join(places) or 'no'} {program.collective} calls of {count(program.ranks, 'rank')}, {sizes}, "
            f"whose element count is a multiple of {program.chunks}")


def refusals(program: Program, call: Call, goal: Target) -> list[tuple[str, str]]:
    """(code, reason) for everything that keeps `goal` from picking the program for `call`; empty: it will."""
    found = []
    if program.ranks != call.ranks:
        found.append(("L01", f"the file is for {count(program.ranks, 'rank')}, the call has {call.ranks}"))
    if program.collective != call.collective:
        found.append(("L02", f"the file's collective is {program.collective}, the call's {call.collective}"))
    low, high = size_range(program, goal)
    if call.size_bytes < low:
        found.append(("L03", f"{format_size_exactly(call.size_bytes)} is below minBytes, {format_size_exactly(low)}"))
    if high is not None and call.size_bytes > high:
        found.append(("L04", _above(program, call, goal, high)))
    elements, rest = divmod(call.size_bytes, call.element_bytes)
    if rest:
        found.append(("L05", f"{call.size_bytes} bytes are no whole number of {call.element_bytes}-byte elements"))
    elif program.chunks > 0 and elements % program.chunks:
        found.append(("L05", f"{elements} elements are not a multiple of nchunksperloop={program.chunks}; the next "
                      f"that is would be {-(-elements // program.chunks) * program.chunks} (pad to it, or choose "
                      "another number of chunks)"))
    found += _placement(program, call, goal)
    return found


def unserved(program: Program, size_bytes: int, goal: Target | None) -> list[str]:
    """Why a message of `size_bytes` of float32 does not run this program on `goal` (None: on some runtime)."""
    call = Call(size_bytes, program.ranks, in_place=bool(program.in_place), collective=program.collective)
    goals = TARGETS.values() if goal is None else (goal,)
    reasons = [reason for each in goals for code, reason in refusals(program, call, each) if code != "L06"]
    return list(dict.fromkeys(reasons))


def _above(program: Program, call: Call, goal: Target, high: int) -> str:
    size = format_size_exactly(call.size_bytes)
    if program.max_bytes is None:
        return f"{size} is beyond the 128 MiB that {goal.name} takes where a file has no maxBytes"
    if program.max_bytes == 0:
        return f"maxBytes=0 means never for {goal.name}"
    if call.size_bytes == program.max_bytes:
        return f"{size} is maxBytes itself, which {goal.name} no longer serves; write maxBytes={high + 2}"
    return f"{size} is above maxBytes, {format_size_exactly(program.max_bytes)}"


def _placement(program: Program, call: Call, goal: Target) -> list[tuple[str, str]]:
    if not goal.both_placements:
        served = bool(program.in_place) == call.in_place
    else:
        served = bool(program.in_place if call.in_place else program.out_of_place)
    if served:
        return []
    what = "in place" if call.in_place else "out of place"
    flag = "inplace" if call.in_place or not goal.both_placements else "outofplace"
    wrong = 0 if call.in_place or goal.both_placements else 1
    return [("L06", f"the call is {what}, and the file has {flag}={wrong}")]
