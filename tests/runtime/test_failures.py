"""A rank that dies, stops, stays away, or has other ideas: every rank ends, says where all stand, and why."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="running needs the `run` extra: pip install -e .[run]")

from latecomer.runtime.executor import Executor  # noqa: E402
from latecomer.runtime.failures import CollectiveFailed, PlanMismatch  # noqa: E402
from latecomer.runtime.forked import Gloo, Outcome, run_forked  # noqa: E402
from latecomer.runtime.oracle import in_threads  # noqa: E402
from latecomer.runtime.plan import Plan  # noqa: E402
from latecomer.runtime.transports.local import LocalWorld  # noqa: E402
from latecomer.runtime.transports.torch_p2p import TorchTransport  # noqa: E402
from tests.runtime.cases import schedule  # noqa: E402

RANKS = 4
LIMIT_S = 25.0


def plan(name: str = "all_pairs") -> Plan:
    built = schedule(name, RANKS, RANKS - 1)
    assert built is not None
    return Plan(built)


def failing(work: Any, meddle: Any = lambda pids: None, timeout_s: float = 3.0) -> list[Outcome]:
    """What became of every rank; `work(rank, executor)` runs after a first good collective."""
    gloo, shared = Gloo(RANKS), plan()

    def joined(rank: int) -> str:
        gloo.join(rank)
        executor = Executor(shared, TorchTransport(), timeout_s=timeout_s)
        executor.all_reduce(torch.ones(100))
        try:
            work(rank, executor)
        except CollectiveFailed as error:
            return f"{type(error).__name__}: {error}"
        return "went well"

    began = time.monotonic()
    try:
        outcomes = run_forked(RANKS, joined, timeout_s=LIMIT_S, meddle=meddle)
    finally:
        gloo.close()
    assert time.monotonic() - began < LIMIT_S - 1, "a rank had to be killed"
    return outcomes


def test_a_killed_rank() -> None:
    def work(rank: int, executor: Executor) -> None:
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        executor.all_reduce(torch.ones(100))

    outcomes = failing(work)
    assert outcomes[2].error is not None
    for rank in (0, 1, 3):
        text = outcomes[rank].value
        assert "CollectiveFailed: collective 2 ended" in text, outcomes[rank]
        assert "rank 2: does not answer" in text
        assert text.split("\n")[0].endswith("ended: rank 2 dead or stopped; the others cannot go on")
        assert "steps done, stands at: " in text


def test_a_stopped_rank_and_nobody_is_left() -> None:
    seen: list[int] = []

    def work(rank: int, executor: Executor) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        executor.all_reduce(torch.ones(100))

    def meddle(pids: Sequence[int]) -> None:
        seen.extend(pids)
        time.sleep(9.0)
        os.kill(pids[1], signal.SIGCONT)  # too late: it must end by itself

    outcomes = failing(work, meddle, timeout_s=2.0)
    for rank in (0, 2, 3):
        assert "collective 2 ended: rank 1 dead or stopped" in outcomes[rank].value, outcomes[rank]
        assert "noticed first: rank" in outcomes[rank].value
    text = outcomes[1].value
    assert text.startswith(("CollectiveFailed: collective 2 ended: ", "CollectiveFailed: collective 2 failed: ")), text
    assert "rank 1 dead or stopped" in text.split("\n")[0], "it blames the others"
    for pid in seen:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_rank_that_is_late_beyond_the_timeout() -> None:
    def work(rank: int, executor: Executor) -> None:
        if rank == 3:
            time.sleep(6.0)
        executor.all_reduce(torch.ones(100))

    outcomes = failing(work, timeout_s=2.0)
    for rank in (0, 1, 2):
        assert "made no progress for 2 s" in outcomes[rank].value, outcomes[rank]
        assert "collective 2 ended: rank 3 late: has not called collective 2 yet" in outcomes[rank].value
        assert "waits for rank" in outcomes[rank].value
    assert "collective 2 failed: rank 3 late" in outcomes[3].value


def test_a_size_mismatch() -> None:
    def work(rank: int, executor: Executor) -> None:
        executor.all_reduce(torch.ones(100 if rank != 1 else 96))

    for outcome in failing(work, timeout_s=20.0):  # found long before the timeout
        assert "PlanMismatch" in outcome.value, outcome
        assert "96 elements of float32, sum" in outcome.value
        assert "100 elements of float32, sum" in outcome.value


def test_another_plan() -> None:
    gloo, plans = Gloo(RANKS), [plan(), plan("tiling"), plan(), plan()]

    def joined(rank: int) -> str:
        gloo.join(rank)
        with pytest.raises(PlanMismatch) as caught:
            Executor(plans[rank], TorchTransport())
        return str(caught.value)

    outcomes = run_forked(RANKS, joined, timeout_s=LIMIT_S)
    gloo.close()
    for outcome in outcomes:
        assert "the ranks hold different plans" in outcome.value, outcome
        assert "tiling" in outcome.value


def local(timeout_s: float, start_timeout_s: float = 5.0) -> tuple[LocalWorld, list[Executor]]:
    world, shared = LocalWorld(RANKS), plan()
    made = in_threads(
        [
            lambda rank=rank: Executor(  # type: ignore[misc]
                shared, world.transport(rank), timeout_s=timeout_s, start_timeout_s=start_timeout_s
            )
            for rank in range(RANKS)
        ]
    )
    return world, made


def test_threads_fail_the_same_way() -> None:
    _, executors = local(timeout_s=1.0)

    def call(rank: int) -> str:
        if rank == 0:
            return "away"
        with pytest.raises(CollectiveFailed) as caught:
            executors[rank].all_reduce(np.ones(64))
        return str(caught.value)

    said = in_threads([lambda rank=rank: call(rank) for rank in range(RANKS)])  # type: ignore[misc]
    assert all("rank 0 late: has not called collective 1 yet" in text for text in said[1:])
    with pytest.raises(CollectiveFailed, match="make a new process group"):
        executors[0].all_reduce(np.ones(64))


def test_a_rank_that_gives_up_tells_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _, executors = local(timeout_s=20.0)
    arrays = executors[0].transport.arrays
    monkeypatch.setattr(arrays, "copy", lambda src, out: 1 / 0)
    monkeypatch.setattr(arrays, "reduce", lambda op, a, b, out: 1 / 0 if len(a) > 1 else None)

    def call(rank: int) -> str:
        with pytest.raises(ZeroDivisionError if rank == 0 else CollectiveFailed) as caught:
            executors[rank].all_reduce(np.ones(64))
        return str(caught.value)

    start = time.monotonic()
    said = in_threads([lambda rank=rank: call(rank) for rank in range(RANKS)])  # type: ignore[misc]
    assert all("rank 0 gave up: ZeroDivisionError" in text for text in said[1:]), said
    assert time.monotonic() - start < 15


def test_a_lost_connection_is_reported_at_once() -> None:
    world, executors = local(timeout_s=60.0)
    world.lose(2)
    with pytest.raises(CollectiveFailed, match="connection to rank 2 lost: closed by peer"):
        executors[0].all_reduce(np.ones(64))


def test_a_rank_without_an_executor() -> None:
    with pytest.raises(PlanMismatch, match="no executor was made on ranks 1, 2, 3"):
        Executor(plan(), LocalWorld(RANKS).transport(0), start_timeout_s=0.1)


def test_a_rank_without_an_answer_because_it_closed() -> None:
    _, executors = local(timeout_s=0.6)
    executors[2].close()

    def call(rank: int) -> str:
        with pytest.raises(CollectiveFailed) as caught:
            executors[rank].all_reduce(np.ones(64))
        return str(caught.value)

    for text in in_threads([lambda rank=rank: call(rank) for rank in (0, 1, 3)]):  # type: ignore[misc]
        assert text.startswith("collective 1 ended: rank 2 closed the executor before collective 1"), text


def test_a_rank_that_does_not_look_for_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers, and says that it waits for others, whose messages lie there: they are not to blame."""
    monkeypatch.setattr("latecomer.runtime.executor.LOOK_S", 0.1)
    monkeypatch.setattr("latecomer.runtime.monitor.LOOK_S", 0.1)
    monkeypatch.setattr("latecomer.runtime.failures.AWAY_S", 0.5)
    _, executors = local(timeout_s=1.0)
    arrays = executors[1].transport.arrays
    sleeps = [2.5]

    def reduce(op: str, a: Any, b: Any, out: Any) -> None:
        time.sleep(sleeps.pop() if sleeps and len(a) > 1 else 0)  # the check before the call reduces one element

    monkeypatch.setattr(arrays, "reduce", reduce)

    def call(rank: int) -> str:
        with pytest.raises(CollectiveFailed) as caught:
            executors[rank].all_reduce(np.ones(64))
        return str(caught.value).split("\n")[0]

    for text in in_threads([lambda rank=rank: call(rank) for rank in range(RANKS)]):  # type: ignore[misc]
        assert "collective 1 ended: rank 1 busy with something else" in text
