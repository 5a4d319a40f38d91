"""What the runtime's tests share: every algorithm's schedule, random data, and the exact result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.errors import NotApplicable
from latecomer.schedules.schedule import Schedule
from latecomer.synth.chunking import Model
from latecomer.synth.registry import ALGORITHMS, Request, named

Array = NDArray[Any]
NAMES = [algorithm.name for algorithm in ALGORITHMS]
MODEL = Model(10.0, 3.0, 1000.0, 500.0)
"""A delay of half a message: some segments are reduced early and some are not."""


def schedule(name: str, ranks: int, late: int, chunks: int | None = None) -> Schedule | None:
    """None where the algorithm does not serve this number of ranks (or searches for minutes)."""
    if name == "exact" and ranks > 4:
        return None
    try:
        built = named(name).build(Request(ranks, chunks, MODEL))
    except NotApplicable:
        return None
    if not named(name).late:
        return built
    return built.bound_to([*(rank for rank in range(ranks) if rank != late), late])


def schedules(ranks: int, late: int) -> Iterator[tuple[str, Schedule]]:
    for name in NAMES:
        built = schedule(name, ranks, late)
        if built is not None:
            yield name, built


def numpy_dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def contributions(ranks: int, elements: int, dtype: Any, seed: int) -> list[Array]:
    """Small whole numbers: every sum, minimum, maximum and product of ±1 is exact in every type."""
    random = np.random.default_rng(seed)
    return [random.integers(-3, 4, elements).astype(dtype) for _ in range(ranks)]


def expected(data: list[Array], op: str = "sum") -> Array:
    """The float64 reference."""
    whole = np.stack([array.astype(np.float64) for array in data])
    reductions = {"sum": whole.sum, "avg": whole.mean, "min": whole.min, "max": whole.max, "prod": whole.prod}
    result: Array = reductions[op](axis=0)
    return result
