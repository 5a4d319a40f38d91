"""Random data whose sums are known: what measurements and `latecomer.run` check every element against."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.errors import LatecomerError


class WrongResult(LatecomerError):
    """A collective ended with elements that are not what they should be."""

    exit_code = 1


def contribution(elements: int, seed: int, rank: int) -> NDArray[np.float32]:
    """What `rank` adds: multiples of 1/128 in [-1, 1), so float32 and float64 sum them exactly in any order."""
    random = np.random.default_rng([seed, rank])
    return random.integers(-128, 128, elements, dtype=np.int16).astype(np.float32) / np.float32(128)


def reference(elements: int, seed: int, ranks: int) -> NDArray[np.float64]:
    """The sum of all contributions, in float64."""
    total = np.zeros(elements, dtype=np.float64)
    for rank in range(ranks):
        total += contribution(elements, seed, rank)
    return total


def compare(result: NDArray[Any], wanted: NDArray[np.float64], ranks: int, dtype: str) -> None:
    """Every element against the reference. Raises `WrongResult` with the first that is wrong.

    float32 and float64 must be equal; a shorter type may be off by its rounding, once per addition of numbers below
    `ranks`.
    """
    if result.dtype in (np.float32, np.float64) and bool((result == wanted).all()):
        return  # the common case, without large temporaries
    bits = {"float16": 11, "bfloat16": 8}.get(dtype)
    allowed = 0.0 if bits is None else ranks * ranks * 2.0**-bits
    off = np.abs(result.astype(np.float64) - wanted)
    bad = ~(off <= allowed)  # NaN is bad
    if bad.any():
        first = int(np.argmax(bad))
        raise WrongResult(
            f"element {first} is {float(result[first])}, should be {wanted[first]}; "
            f"{int(bad.sum())} of {len(bad)} are wrong"
        )
