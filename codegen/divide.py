"""Chunks that fit the sizes people use: a message of 2^k elements never divides by n-1, so cut it into 2^j units.

The number of chunks stays, and with it the schedule's rounds; owners get unequally many units (64 over 7 owners: six
times 9 and once 10, 9 % more than an equal cut on the largest).
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd

from latecomer.codegen.drafts import Units
from latecomer.schedules.chunks import Chunks
from latecomer.schedules.errors import InputError
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.units import format_size

LOSS = Fraction(2, 100)
"""The cut gets finer until the largest chunk is at most this much over its equal share."""
FINEST = 1024
"""Units; a finer cut makes longer files and steps for little."""


def fitting(schedule: Schedule, low_bytes: int, high_bytes: int, element_bytes: int) -> Schedule:
    """The same schedule with chunks whose units divide every power-of-two size in the range, and its ends.

    Correctness does not depend on the sizes of chunks, so what was proven stays proven; the certificate's times do
    not hold for the new cut, and it is dropped. Unchanged if the units divide already. Raises `InputError` where no
    cut into at least as many units as there are chunks divides all those sizes.
    """
    counts = [size // element_bytes for size in _sizes(low_bytes, high_bytes) if size % element_bytes == 0]
    common = gcd(*counts) if counts else 0
    if common and common % Units(schedule.chunks.weights).total == 0:
        return schedule
    weights = schedule.chunks.weights
    filled = sum(1 for w in weights if w)
    best: tuple[int, ...] | None = None
    units = 1
    while units < FINEST:
        units *= 2
        if units < filled:
            continue
        if not common or common % units:
            break
        best = _split(weights, units)
        most = max(Fraction(b * sum(weights), w * units) for b, w in zip(best, weights, strict=True) if w)
        if most <= 1 + LOSS:
            break
    if best is None:
        raise InputError(f"no cut into {filled} chunks or more divides all of {format_size(low_bytes)} … "
                         f"{format_size(high_bytes)} in elements of {element_bytes} bytes; use fewer chunks "
                         "(latecomer synth --chunks), or larger messages")
    chunks = Chunks(weights=best, owners=schedule.chunks.owners)
    return schedule.model_copy(update={"chunks": chunks, "certificate": None})


def _sizes(low: int, high: int) -> list[int]:
    """The powers of two in the range, and both ends where they are none."""
    powers = [1 << k for k in range(low.bit_length() - 1, high.bit_length()) if low <= 1 << k <= high]
    return sorted({low, high, *powers})


def _split(weights: tuple[int, ...], units: int) -> tuple[int, ...]:
    """`units` in proportion to `weights`, at least one where a weight is not 0: largest remainders first."""
    total = sum(weights)
    shares = [Fraction(w * units, total) for w in weights]
    result = [max(1, int(share)) if w else 0 for w, share in zip(weights, shares, strict=True)]
    order = sorted(range(len(weights)), key=lambda c: (result[c] - shares[c], c))
    while sum(result) < units:
        for c in order:
            if weights[c] and sum(result) < units:
                result[c] += 1
    while sum(result) > units:
        c = max((c for c in range(len(weights)) if result[c] > 1), key=lambda c: (result[c] - shares[c], -c))
        result[c] -= 1
    return tuple(result)
