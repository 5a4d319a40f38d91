"""`Transport`: what the executor needs of a runtime, and nothing else.

A message is a contiguous piece of a buffer. It is matched by (sender, receiver, tag); both ends give the same number of
elements, which the executor sees to by putting the size into the tag. Posting never blocks; `wait` hands back the keys
of what was posted, in the order in which it ends.
"""

from __future__ import annotations

from typing import Any, Protocol

from latecomer.runtime.arrays import Arrays
from latecomer.runtime.board import Board


class Transport(Protocol):
    """One rank's end. `rank` and `ranks` count in the group, not in the world."""

    rank: int
    ranks: int
    arrays: Arrays
    board: Board
    default_timeout_s: float
    """What the runtime itself allows an operation, s."""
    slot: int
    """Below `latecomer.runtime.tags.SLOTS`; transports that are open on one group at the same time differ in it."""
    grouped: bool
    """Messages are to be posted round by round in one group each (`latecomer.runtime.grouped`), not one by one."""

    def send(self, key: int, peer: int, tag: int, data: Any) -> None:
        """Post `data` to `peer`; it may be written again when `wait` returns `key`."""

    def receive(self, key: int, peer: int, tag: int, out: Any) -> None:
        """Post the receive of `len(out)` elements from `peer`; `out` holds them when `wait` returns `key`."""

    def wait(self, timeout_s: float) -> int | None:
        """The key of a message that has ended, or None after `timeout_s`. Raises `PeerLost`."""

    def close(self) -> None:
        """Let go of threads; messages still posted stay so. Closing twice is allowed."""
