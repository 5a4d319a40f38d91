"""`Monitor`: a helper thread that looks for alarms, answers them for its rank, and finds disagreement early."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Final

from latecomer.runtime.board import SILENCE_S, Board, gather
from latecomer.runtime.failures import (
    RUNNING,
    CollectiveFailed,
    PlanMismatch,
    Status,
    diagnose,
    disagreement,
    find_root,
    from_text,
    idle,
    out_of_reach,
    to_text,
)

LOOK_S: Final = 0.5
"""How often the board is looked at."""
STALL_S: Final = 1.0
"""A rank that made no progress for so long compares sizes with the others that stand still."""


class Monitor:
    """One rank's. `status` says where the rank stands, `stalled` for how long it has made no progress, s."""

    def __init__(
        self, board: Board, rank: int, ranks: int, status: Callable[[], Status], stalled: Callable[[], float]
    ) -> None:
        self._board, self._rank, self._ranks = board, rank, ranks
        self._status, self._stalled = status, stalled
        self._closed = threading.Event()
        self._answered = False
        self.alarm: tuple[int, str] | None = None
        """(collective, reason) once some rank has raised it."""
        self._thread = threading.Thread(target=self._watch, daemon=True, name=f"latecomer monitor {rank}")
        self._thread.start()

    def close(self, ended: int) -> None:
        """End the thread, and wait for it: one that is in a store's call when Python ends would abort the process.

        A rank that closes after `ended` collectives answers an alarm to come now.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        self._thread.join(timeout=2 * LOOK_S)
        self._answer(idle(ended, closed=True))

    def raise_alarm(self, call: int, reason: str) -> None:
        """Tell every rank that collective `call` cannot end. The first alarm counts."""
        if self._board.read("alarm") is None:
            self._board.write("alarm", json.dumps([call, reason]))
        self._take(self._board.read("alarm") or json.dumps([call, reason]))

    def failure(self) -> CollectiveFailed:
        """What to raise once `alarm` is set: where every rank stands. Waits for the answers of the others."""
        assert self.alarm is not None
        call, reason = self.alarm
        texts = gather(self._board, "status", self._ranks, SILENCE_S)
        statuses = {rank: from_text(json.loads(text)) for rank, text in texts.items()}
        own = statuses.setdefault(self._rank, self._status())
        root = self._root(statuses) if self._rank in texts else out_of_reach(self._rank, own)
        disagree = any(text.startswith("the ranks disagree") for text in (root, reason))
        failure = (PlanMismatch if disagree else CollectiveFailed)(diagnose(statuses, self._ranks, call, root, reason))
        there = [rank for rank in texts if statuses[rank].state == RUNNING and not statuses[rank].gave_up]
        failure.speaker = min(there, default=self._rank)
        return failure

    def again(self) -> CollectiveFailed:
        """What to raise on a call after the alarm."""
        assert self.alarm is not None
        call, reason = self.alarm
        root = self._board.read("root") or reason
        return CollectiveFailed(f"collective {call} failed: {root}; make a new process group and executor")

    def _root(self, statuses: Mapping[int, Status]) -> str:
        """What the first rank to know found: ranks that were stopped, or see the others go, say the same."""
        assert self.alarm is not None
        if self._board.read("root") is None:
            self._board.write("root", find_root(statuses, self._ranks, *self.alarm))
        return self._board.read("root") or find_root(statuses, self._ranks, *self.alarm)

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_S):
            text = self._board.read("alarm")
            if text is not None:
                self._take(text)
                return
            if self._stalled() > STALL_S:
                self._compare()

    def _take(self, text: str) -> None:
        call, reason = json.loads(text)
        self._answer(self._status())
        self.alarm = (call, reason)

    def _answer(self, status: Status) -> None:
        if not self._answered:
            self._answered = True
            self._board.write(f"status/{self._rank}", json.dumps(to_text(status)))

    def _compare(self) -> None:
        mine = self._status()
        if mine.state != RUNNING:
            return
        self._board.write(f"call/{mine.call}/{self._rank}", mine.signature)
        said = {self._rank: mine}
        for rank in range(self._ranks):
            if rank != self._rank and (text := self._board.read(f"call/{mine.call}/{rank}")) is not None:
                said[rank] = mine._replace(signature=text)
        different = disagreement(said)
        if different:
            self.raise_alarm(mine.call, different)
