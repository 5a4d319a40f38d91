"""The adaptive form's agreement: one round trip decides how much pre-work there is, and nobody predicts a delay.

The late rank says *here* to all. Each early rank stops starting rounds of pre-work and *answers* how many it has
started. The largest answer is the *cut*: the late rank sends it to all, everyone finishes that many rounds, and goes on
in the branch made for it.
"""

from __future__ import annotations

from typing import Any

from latecomer.runtime.engine import Engine
from latecomer.runtime.tags import ANSWER, CUT, HERE
from latecomer.runtime.transports.base import Transport


class Early:
    """The early ranks' side: a state machine fed with keys, all of them negative."""

    def __init__(self, transport: Transport, tags: int, late: int) -> None:
        self._transport, self._tags, self._late = transport, tags, late
        numbers = transport.arrays.number
        self._here, self._answer, self._cut = numbers(0), numbers(0), numbers(0)
        self.open = {-1, -2, -3}
        """Keys still to come."""
        transport.receive(-1, late, tags | HERE, self._here)
        transport.receive(-3, late, tags | CUT, self._cut)

    def ended(self, key: int, engine: Engine) -> int | None:
        """The cut, when `key` brings it."""
        self.open.discard(key)
        if key == -1:
            engine.limit = engine.started
            self._answer[0] = engine.started
            self._transport.send(-2, self._late, self._tags | ANSWER, self._answer)
        return int(self._cut[0]) if key == -3 else None

    def waits(self) -> tuple[int, ...]:
        """Peers of what is still to come."""
        return (self._late,) if self.open else ()


class Late:
    """The late rank's side. Key -1-4i-k belongs to the i-th early rank's message of kind k."""

    def __init__(self, transport: Transport, tags: int) -> None:
        self._transport, self._tags = transport, tags
        self._peers = [rank for rank in range(transport.ranks) if rank != transport.rank]
        self._here = transport.arrays.number(0)
        self._answers: list[Any] = [transport.arrays.number(0) for _ in self._peers]
        self._missing = set(range(len(self._peers)))
        self._cut = transport.arrays.number(0)
        self.open: set[int] = set()
        for i, peer in enumerate(self._peers):
            self._transport.send(self._key(i, 0), peer, tags | HERE, self._here)
        for i, peer in enumerate(self._peers):
            self._transport.receive(self._key(i, 1), peer, tags | ANSWER, self._answers[i])

    def _key(self, i: int, kind: int) -> int:
        key = -1 - 4 * i - kind
        self.open.add(key)
        return key

    def ended(self, key: int, engine: Engine) -> int | None:
        """The cut, when `key` brings the last answer."""
        self.open.discard(key)
        i, kind = divmod(-1 - key, 4)
        if kind != 1:
            return None
        self._missing.discard(i)
        if self._missing:
            return None
        self._cut[0] = max(int(answer[0]) for answer in self._answers)
        for j, peer in enumerate(self._peers):
            self._transport.send(self._key(j, 2), peer, self._tags | CUT, self._cut)
        return int(self._cut[0])

    def waits(self) -> tuple[int, ...]:
        """Peers that have not answered."""
        return tuple(self._peers[i] for i in sorted(self._missing))
