"""`Chunks`: how the message is cut, exactly, and how that cut falls on a given number of elements."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_TOTAL = 2**53

EVERY_EARLY_RANK = -1
"""As a chunk's owner: all early ranks hold its partial sum when the pre-work ends."""


class Chunks(BaseModel):
    """Consecutive pieces of the message; chunk c is `weights[c] / total` of it and belongs to `owners[c]`.

    A weight of 0 is legal: an empty chunk. The owner is the role that holds the chunk's partial sum when the
    pre-work ends (in a synchronous schedule: its full sum when the ReduceScatter half ends).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    weights: tuple[int, ...] = Field(min_length=1)
    owners: tuple[int, ...]

    @model_validator(mode="after")
    def _well_formed(self) -> Self:
        if len(self.owners) != len(self.weights):
            raise ValueError(f"{len(self.weights)} weights but {len(self.owners)} owners")
        if min(self.weights) < 0:
            raise ValueError(f"chunk {self.weights.index(min(self.weights))} has a negative weight")
        if self.total == 0:
            raise ValueError("all chunks are empty")
        if self.total > MAX_TOTAL:
            raise ValueError(f"the weights add up to {self.total}; at most 2^53 keeps every size exact")
        return self

    @classmethod
    def equal(cls, owners: list[int] | tuple[int, ...]) -> Chunks:
        """`len(owners)` chunks of the same size."""
        return cls(weights=(1,) * len(owners), owners=tuple(owners))

    def __len__(self) -> int:
        return len(self.weights)

    @cached_property
    def total(self) -> int:
        """The denominator of every chunk's fraction of the message."""
        return sum(self.weights)

    @property
    def uniform(self) -> bool:
        """All chunks have the same size."""
        return len(set(self.weights)) == 1

    def fraction(self, chunk: int) -> Fraction:
        """Chunk's exact share of the message."""
        return Fraction(self.weights[chunk], self.total)

    def bounds(self, elements: int) -> NDArray[np.int64]:
        """Shape (chunks + 1,): chunk c of `elements` elements is `bounds[c]:bounds[c + 1]`.

        A boundary is the exact cumulative fraction rounded down, so the split depends on `elements` alone,
        misses nothing, and chunks of equal weight differ by at most one element. Fewer elements than chunks
        leave some chunks empty.
        """
        ends = np.cumsum([0, *self.weights], dtype=object)
        return np.array([int(e) * elements // self.total for e in ends], dtype=np.int64)
