"""Pass: rounds that repeat with other chunks become loops, so that a table's length does not grow with the chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from latecomer.codegen.nccl_table import Round

MAX_PERIOD: Final = 32
"""Longest stretch of rounds that is looked for again."""


class Loop(NamedTuple):
    """`rounds`, `times` times over; each time all chunk numbers are `stride` greater than the time before."""

    rounds: tuple[Round, ...]
    times: int
    stride: int


def fold(rounds: Sequence[Round]) -> list[Loop]:
    """`rounds` as loops; expanding them gives `rounds` again, round numbers aside.

    From the left, the period that saves most rounds, the shortest among equals. O(rounds · MAX_PERIOD).
    """
    shapes = [_shape(r) for r in rounds]
    bases = [_base(r) for r in rounds]

    def alike(i: int, period: int, stride: int) -> bool:
        j = i + period
        return j < len(rounds) and shapes[i] == shapes[j] and bases[j] - bases[i] == stride

    loops: list[Loop] = []
    plain = at = 0
    while at < len(rounds):
        saved, period, times, stride = 0, 1, 1, 0
        for q in range(1, min(MAX_PERIOD, (len(rounds) - at) // 2) + 1):
            step = bases[at + q] - bases[at]
            end = at
            while alike(end, q, step):
                end += 1
            repeats = (end - at) // q
            if repeats * q > saved:
                saved, period, times, stride = repeats * q, q, repeats + 1, step
        if saved < 2:
            at += 1
            continue
        if plain < at:
            loops.append(Loop(tuple(rounds[plain:at]), 1, 0))
        loops.append(Loop(tuple(rounds[at : at + period]), times, stride))
        at += period * times
        plain = at
    if plain < len(rounds):
        loops.append(Loop(tuple(rounds[plain:]), 1, 0))
    return loops


def _base(round: Round) -> int:
    return min(step.chunk for step in (*round.moves, *round.local))


def _shape(round: Round) -> tuple[object, ...]:
    base = _base(round)
    return tuple(
        tuple(step._replace(chunk=step.chunk - base) for step in steps) for steps in (round.moves, round.local)
    )
