"""`Board`: a few words that all ranks can read, beside the data's connections. For plans' digests and for failures.

Nothing is written or read while a collective makes progress.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Protocol

SILENCE_S = 3.0
"""After an alarm: how long ranks are given to say where they stand."""


class Board(Protocol):
    """Text by key. Neither method blocks for more than a second or so, nor raises: a board may be out of reach."""

    def write(self, key: str, text: str) -> None:
        """Put `text` under `key`."""

    def read(self, key: str) -> str | None:
        """What is under `key`, or None."""


class LocalBoard:
    """One for all ranks of a process."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def write(self, key: str, text: str) -> None:
        """See `Board`."""
        self._texts[key] = text

    def read(self, key: str) -> str | None:
        """See `Board`."""
        return self._texts.get(key)


class StoreBoard:
    """A torch store. Its calls can hang when its host is stopped, so they run in threads that are given up on."""

    PATIENCE_S = 1.0

    def __init__(self, store: Any) -> None:
        self._store = store
        self._hanging: threading.Thread | None = None

    def write(self, key: str, text: str) -> None:
        """See `Board`."""
        self._try(lambda: self._store.set(key, text))

    def read(self, key: str) -> str | None:
        """See `Board`."""
        found: Any = self._try(lambda: self._store.get(key) if self._store.check([key]) else None)
        return None if found is None else bytes(found).decode()

    def _try(self, call: Any) -> Any:
        if self._hanging is not None and self._hanging.is_alive():
            return None  # it holds the store's lock: no other call would get through
        result: list[Any] = []

        def attempt() -> None:
            try:
                result.append(call())
            except (RuntimeError, ValueError):  # torch's DistError is a RuntimeError
                result.append(None)

        thread = threading.Thread(target=attempt, daemon=True)
        thread.start()
        thread.join(self.PATIENCE_S)
        if not result:
            self._hanging = thread
            return None
        return result[0]


def gather(board: Board, prefix: str, ranks: int, timeout_s: float) -> dict[int, str]:
    """What each rank has written under `prefix/<rank>`, waiting at most `timeout_s` for those that have not."""
    found: dict[int, str] = {}
    deadline = time.monotonic() + timeout_s
    while True:
        for rank in range(ranks):
            if rank not in found and (text := board.read(f"{prefix}/{rank}")) is not None:
                found[rank] = text
        if len(found) == ranks or time.monotonic() > deadline:
            return found
        time.sleep(0.02)
