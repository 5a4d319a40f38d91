"""`local`: ranks are threads of one process, arrays are numpy's. The oracle and the test bed.

Strictly rendezvous: a send ends when its receive takes the data, as the least forgiving runtime does. The later of the
two ends copies; no thread of its own is needed.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import Any

from latecomer.runtime.arrays import Arrays, NumpyArrays
from latecomer.runtime.board import Board, LocalBoard
from latecomer.runtime.failures import PeerLost

_Posted = tuple[int, Any]
"""(key, array) of one end of a message that waits for the other."""


class LocalWorld:
    """What the ranks of one process share."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.board = LocalBoard()
        self.ended: list[queue.SimpleQueue[int | PeerLost]] = [queue.SimpleQueue() for _ in range(ranks)]
        self.lock = threading.Lock()
        self.sends: dict[tuple[int, int, int], deque[_Posted]] = {}
        self.receives: dict[tuple[int, int, int], deque[_Posted]] = {}

    def transport(self, rank: int) -> LocalTransport:
        """The end of `rank`."""
        return LocalTransport(self, rank)

    def lose(self, rank: int) -> None:
        """As if the process of `rank` had died: every other rank is told."""
        for other in range(self.ranks):
            if other != rank:
                self.ended[other].put(PeerLost(rank, "closed by peer"))


class LocalTransport:
    """See `latecomer.runtime.transports.base.Transport`."""

    slot = 0
    grouped = False

    def __init__(self, world: LocalWorld, rank: int) -> None:
        self.rank, self.ranks, self._world = rank, world.ranks, world
        self.arrays: Arrays = NumpyArrays()
        self.board: Board = world.board
        self.default_timeout_s = 60.0

    def send(self, key: int, peer: int, tag: int, data: Any) -> None:
        """Post a send."""
        self._meet((self.rank, peer, tag), key, data, self._world.sends, self._world.receives)

    def receive(self, key: int, peer: int, tag: int, out: Any) -> None:
        """Post a receive."""
        self._meet((peer, self.rank, tag), key, out, self._world.receives, self._world.sends)

    def _meet(self, wire: tuple[int, int, int], key: int, array: Any, mine: Any, theirs: Any) -> None:
        world = self._world
        with world.lock:
            waiting = theirs.get(wire)
            if not waiting:
                mine.setdefault(wire, deque()).append((key, array))
                return
            other_key, other = waiting.popleft()
            if not waiting:
                del theirs[wire]
        sending = mine is world.sends
        src, out = (array, other) if sending else (other, array)
        if len(src) != len(out):
            raise AssertionError(f"message {wire}: {len(src)} elements sent, {len(out)} expected")
        out[:] = src
        world.ended[self.rank].put(key)
        world.ended[wire[1] if sending else wire[0]].put(other_key)

    def wait(self, timeout_s: float) -> int | None:
        """The key of a message that ended, or None."""
        try:
            ended = self._world.ended[self.rank].get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(ended, PeerLost):
            raise ended
        return ended

    def close(self) -> None:
        """Nothing to let go of."""
