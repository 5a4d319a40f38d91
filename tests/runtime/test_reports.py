"""The report of a hang: whom its first line names, and what is said where the board does not answer."""

from __future__ import annotations

import threading
import time
from typing import Any

from latecomer.runtime.board import LocalBoard, StoreBoard
from latecomer.runtime.failures import RUNNING, Status, find_root, idle
from latecomer.runtime.monitor import Monitor

CALL = 3


def waiting(*waits: int, **more: Any) -> Status:
    return Status(CALL, RUNNING, "4 elements", 1, 9, "a step", waits, **more)


def root(*statuses: Status | None) -> str:
    said = {rank: status for rank, status in enumerate(statuses) if status is not None}
    return find_root(said, len(statuses), CALL, "rank 0 made no progress for 9 s")


def test_the_end_of_the_waits_is_named() -> None:
    assert root(waiting(1), None, waiting(0)) == "rank 1 dead or stopped; the others cannot go on"
    assert root(waiting(1), waiting(2), waiting(3), waiting()).startswith("rank 3 slow")
    # Rank 0's first wait leads into a circle, from which another wait leads out.
    assert root(waiting(1, 2), waiting(0, 3), waiting(1), waiting()).startswith("rank 3 slow")
    assert root(waiting(1), waiting(2), waiting(3), waiting(2)).startswith("ranks wait for each other: 2 → 3 → 2")
    assert root(waiting(1), waiting(2), idle(CALL)).startswith("rank 2 done, and others still wait")
    assert root(waiting(1), waiting(0, away_s=7.2)).startswith("rank 1 busy with something else")
    assert root(waiting(1), waiting(0, gave_up="OSError: x"), None) == "rank 1 gave up: OSError: x"
    assert root(waiting(1), idle(2)) == "rank 1 late: has not called collective 3 yet"
    assert root(waiting(1), idle(2, closed=True)) == "rank 1 closed the executor before collective 3"
    assert root(waiting(), waiting()).startswith("nobody waits")
    assert root(idle(CALL), idle(CALL)) == "rank 0 made no progress for 9 s"


class Silent(LocalBoard):
    """A board out of reach."""

    def read(self, key: str) -> str | None:
        return None


def test_nobody_is_called_dead_where_the_board_does_not_answer(monkeypatch: Any) -> None:
    monkeypatch.setattr("latecomer.runtime.monitor.SILENCE_S", 0.1)
    monitor = Monitor(Silent(), 1, 3, lambda: waiting(2), lambda: 0.0)
    monitor.raise_alarm(CALL, "rank 1 made no progress for 9 s")
    said = str(monitor.failure())
    monitor.close(0)
    assert said.startswith("collective 3 ended: the store does not answer: the process that hosts it may be dead")
    assert "rank 1 waits for rank 2" in said.split("\n")[0]
    assert "dead or stopped; the others" not in said


def test_all_ranks_say_what_the_first_found(monkeypatch: Any) -> None:
    """A rank that was stopped finds the others' connections closed; that is not why it ended."""
    monkeypatch.setattr("latecomer.runtime.monitor.SILENCE_S", 0.1)
    board = LocalBoard()
    states = (waiting(1), waiting(0, lost=(0,)))
    first, second = (Monitor(board, rank, 2, lambda rank=rank: states[rank], lambda: 0.0) for rank in range(2))
    second.close(0)
    board._texts.pop("status/1")  # as if it were stopped
    second._answered = False
    first.raise_alarm(CALL, "rank 0 made no progress for 9 s")
    assert "ended: rank 1 dead or stopped" in str(first.failure())
    second.raise_alarm(CALL, "connection to rank 0 lost: closed")
    assert "ended: rank 1 dead or stopped" in str(second.failure())
    first.close(0)


def test_a_store_that_answers_again_is_asked_again(monkeypatch: Any) -> None:
    monkeypatch.setattr(StoreBoard, "PATIENCE_S", 0.05)
    going_on = threading.Event()

    class Store:
        def check(self, keys: list[str]) -> bool:
            going_on.wait(5.0)
            return True

        def get(self, key: str) -> bytes:
            return b"word"

    board = StoreBoard(Store())
    assert board.read("key") is None
    assert board.read("key") is None, "a call hangs, and no other is made"
    going_on.set()
    deadline = time.monotonic() + 5.0
    while board.read("key") != "word":
        assert time.monotonic() < deadline
        time.sleep(0.01)
