"""`Pattern`: transfers that repeat with a period, said in a few numbers instead of many rows.

A pattern is what a compiled program can loop over: in round i every position sends to the position a fixed offset
away, and the chunk it sends moves on by `stride` each period.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from latecomer.schedules.transfers import Moves, Transfers


class Pattern(BaseModel):
    """In its i-th round, with k = i mod period, position p sends chunk `table[p][k] + stride·(i div period)`
    to position (p + offsets[k]) mod positions.

    `roles[p]` is the role at position p. An entry `None` means that the position does not send in that round of
    the period. A chunk number outside 0 … chunks-1 wraps round (`wrap="cyclic"`), or (`wrap="clamp"`) means
    the last chunk when too large and nothing when negative.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: Literal["copy", "reduce"]
    phase: int = Field(ge=0)
    first_round: int = Field(ge=0)
    rounds: int = Field(ge=1)
    roles: tuple[int, ...] = Field(min_length=2)
    offsets: tuple[int, ...] = Field(min_length=1)
    table: tuple[tuple[int | None, ...], ...]
    stride: int
    wrap: Literal["cyclic", "clamp"]
    chunks: int = Field(ge=1)

    @model_validator(mode="after")
    def _well_formed(self) -> Self:
        if len(self.table) != len(self.roles) or any(len(row) != self.period for row in self.table):
            raise ValueError("a pattern's table must have one row per position and one column per round of the period")
        return self

    @property
    def period(self) -> int:
        """Rounds after which the pattern repeats with the next chunks."""
        return len(self.offsets)

    def fits(self, ranks: int, phases: int, chunks: int, rounds: int) -> bool:
        """Does it speak of roles, phases, chunks and rounds that a schedule of this size has?"""
        entries = [abs(entry) for row in self.table for entry in row if entry is not None]
        return (
            0 <= min(self.roles) <= max(self.roles) < ranks
            and len(set(self.roles)) == len(self.roles)
            and self.phase < phases
            and self.chunks <= chunks
            and self.first_round + self.rounds <= rounds
            and all(0 <= offset < len(self.roles) for offset in self.offsets)
            and max(entries, default=0) + abs(self.stride) * self.rounds < 2**31
        )

    def expand(self) -> Transfers:
        """The rows this pattern stands for. O(rounds · positions)."""
        moves = Moves()
        roles = np.array(self.roles)
        sends = np.array([[entry is not None for entry in row] for row in self.table])
        table = np.array([[entry or 0 for entry in row] for row in self.table])
        for i in range(self.rounds):
            k = i % self.period
            chunk = table[:, k] + self.stride * (i // self.period)
            rows = np.flatnonzero(sends[:, k] & self._exists(chunk))
            target = (rows + self.offsets[k]) % len(roles)
            moves.move(
                self.first_round + i,
                roles[rows],
                roles[target],
                self._wrapped(chunk[rows]),
                reduce=self.op == "reduce",
                phase=self.phase,
            )
        return moves.build()

    def _exists(self, chunk: NDArray[np.int64]) -> NDArray[np.bool_]:
        return chunk >= 0 if self.wrap == "clamp" else np.full(len(chunk), True)

    def _wrapped(self, chunk: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.minimum(chunk, self.chunks - 1) if self.wrap == "clamp" else chunk % self.chunks
