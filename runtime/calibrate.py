"""Fitting the cost model to measurements: what a round costs, what a message costs, what a byte costs.

A collective whose pre-work is hidden, or that has none, takes

    T = rounds · round_latency + messages · message_latency + volume · S · β

where `messages` adds up, round by round, the most that one rank sends, and `volume` the largest share of the message
that passes one port. Those three are counted from the schedule (`features`) and stored with each measurement; the fit
is the non-negative least squares of the relative errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latecomer.schedules.errors import InputError
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.units import MAX_RATE_GBS, MAX_TIME_US, MIN_RATE_GBS


@dataclass(frozen=True)
class Features:
    """What a schedule does after the last arrival; `volume` in messages of S bytes."""

    rounds: int
    messages: int
    volume: float


def features(schedule: Schedule) -> Features:
    """Of an ordinary schedule (`resolve` one with branches first). O(rows)."""
    moves = schedule.after_arrival
    weights = np.array(schedule.chunks.weights, dtype=np.float64) / schedule.chunks.total
    rounds, messages, volume = 0, 0, 0.0
    for _, rows in moves.by_round():
        src, dst, size = moves.src[rows], moves.dst[rows], weights[moves.chunk[rows]]
        pairs = np.unique(src.astype(np.int64) * schedule.ranks + dst)
        rounds += 1
        messages += int(np.bincount(pairs // schedule.ranks).max())
        volume += max(float(np.bincount(end, size).max()) for end in (src, dst))
    return Features(rounds, messages, volume)


@dataclass(frozen=True)
class Fit:
    """The model's numbers: µs, GB/s (1e9), and how far it is off: the median and the largest relative error.

    `told_apart`: the measurements tell a round's cost from a message's; if not, all of it is the message's.
    """

    round_latency_us: float
    message_latency_us: float
    rate_gbs: float
    rows: int
    median_error: float
    largest_error: float
    told_apart: bool


def fit(rows: Sequence[Mapping[str, Any]]) -> Fit:
    """From rows of `latecomer bench`; those without counts (pre-work that was not hidden, the backend) are left out.

    Raises `InputError` where they do not determine a rate.
    """
    known = [_numbers(row) for row in rows]
    table = np.array([row for row in known if row is not None], dtype=np.float64).reshape(-1, 4)
    if len(table) < 2:
        raise InputError(
            "fewer than two measurements have rounds, messages, volume, size_bytes and time_us; measure with "
            "`latecomer bench`, two sizes or more, and delays that hide the pre-work"
        )
    from scipy.optimize import nnls

    time = table[:, 3]
    apart = bool(np.linalg.matrix_rank(table[:, :2] / table[:, :2].max(axis=0)) == 2)
    used = table[:, :3] if apart else table[:, 1:3]
    scale = used.max(axis=0)
    # Relative errors: each row divided by its time. Scaled columns: bytes are large numbers, rounds small ones.
    try:
        found, _ = nnls(used / scale / time[:, None], np.ones(len(table)))
    except (RuntimeError, ValueError) as error:
        raise InputError(f"these measurements cannot be fitted ({error}); measure again") from error
    numbers = found / scale
    round_us, message_us, byte_us = numbers if apart else (0.0, *numbers)
    if byte_us <= 0:
        raise InputError("time does not grow with size in these measurements; measure larger messages")
    rate_gbs = float(1 / byte_us / 1e3)
    if not MIN_RATE_GBS <= rate_gbs <= MAX_RATE_GBS or max(round_us, message_us) > MAX_TIME_US:
        raise InputError(
            f"these measurements give {rate_gbs:.3g} GB/s and {max(round_us, message_us):.3g} µs a message, which no "
            "network has; size_bytes must be in bytes and time_us in µs"
        )
    off = np.abs(table[:, :3] @ np.array([round_us, message_us, byte_us]) / time - 1)
    return Fit(
        float(round_us), float(message_us), rate_gbs, len(table), float(np.median(off)), float(off.max()), apart,
    )  # fmt: skip


def _numbers(row: Mapping[str, Any]) -> tuple[float, float, float, float] | None:
    """(rounds, messages, bytes through the busiest port, time) of a row, or None where it does not say."""
    texts = [row.get(name) for name in ("rounds", "messages", "volume", "size_bytes", "time_us")]
    if any(text in (None, "") for text in texts):
        return None
    try:
        rounds, messages, volume, size, time = (float(str(text)) for text in texts)
    except ValueError as error:
        raise InputError(f"a measurement has a value that is not a number: {error}") from error
    least = {"rounds": rounds, "messages": messages, "volume": volume, "size_bytes": size, "time_us": time}
    for name, value in least.items():
        if not 0 < value < 1e30:  # nan is not
            raise InputError(f"a measurement has {name} {value:g}; measurements have finite numbers above 0")
    return rounds, messages, volume * size, time
