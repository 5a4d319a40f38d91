"""`Completion`: what is left to do once the late rank is there, and the partial sums that must be ready then.

Roles 0 … n-2 are the early ranks, role n-1 is the straggler. When it arrives, the owner of chunk c holds the
partial sum P_c over the early ranks and the straggler its own contribution X_c; afterwards everyone holds
F_c = P_c + X_c. Every construction of that kind is a function `completion(ranks, chunks) -> Completion`.
"""

from __future__ import annotations

from dataclasses import dataclass

from latecomer.schedules.errors import InputError
from latecomer.schedules.pattern import Pattern
from latecomer.schedules.transfers import Transfers


@dataclass(frozen=True)
class Completion:
    """The one-port part of a schedule that waits for the straggler.

    * `transfers`: round 0 is the first round after the arrival; phase 0, accumulators only.
    * `owners`: for each chunk the early role that must hold its partial sum at the arrival, or
      `EVERY_EARLY_RANK`.
    * `rounds`: how many rounds the transfers take.
    * `patterns`: parts of `transfers` that repeat, as rules; each expands to some of the rows.
    * `note`: what a certificate should say besides, where `rounds` is more than `least_rounds`.
    """

    transfers: Transfers
    owners: tuple[int, ...]
    rounds: int
    patterns: tuple[Pattern, ...] = ()
    note: str | None = None


def log2_ceil(value: int) -> int:
    """⌈log2 value⌉ for value ≥ 1, in integers."""
    return (value - 1).bit_length()


def least_rounds(ranks: int, chunks: int) -> int:
    """K + ⌈log2 n⌉ - 1: no one-port completion has fewer rounds, even if every early rank holds every P_c.

    Before round K the others have heard of at most K-1 of the straggler's K chunks; round K tells one early
    rank about the last of them; from then on the number of ranks that know it at most doubles a round.
    """
    return chunks + log2_ceil(ranks) - 1


def require_size(ranks: int, chunks: int) -> None:
    """Raise `InputError` unless there is a straggler, an early rank, and something to send."""
    if ranks < 2:
        raise InputError(f"a completion needs at least 2 ranks (one early, one late), not {ranks}")
    if chunks < 1:
        raise InputError(f"the message must be cut into at least 1 chunk, not {chunks}")
