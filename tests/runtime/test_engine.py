"""What an engine posts, and in which order; and the early ranks' grace."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from latecomer.runtime.arrays import NumpyArrays
from latecomer.runtime.engine import SOON, Engine, Job
from latecomer.runtime.executor import Executor
from latecomer.runtime.oracle import in_threads
from latecomer.runtime.plan import Plan
from latecomer.runtime.steps import Part, Range, Step, Steps
from latecomer.runtime.transports.local import LocalWorld
from latecomer.synth.algorithms import all_pairs


class Recorder:
    """A transport that only notes what is posted."""

    arrays = NumpyArrays()

    def __init__(self) -> None:
        self.posted: list[tuple[str, int]] = []

    def send(self, key: int, peer: int, tag: int, data: Any) -> None:
        self.posted.append(("send", key))

    def receive(self, key: int, peer: int, tag: int, out: Any) -> None:
        self.posted.append(("receive", key))


def test_receives_for_later_do_not_delay_the_first_send() -> None:
    def step(kind: Any, round: int) -> Step:
        place = Range("output", round, round + 1)
        part = Part(place, None, None) if kind == "send" else Part(None, None, place)
        return Step(kind, 1, round, round, (part,), ())

    rounds = 32
    steps = Steps(tuple(step(kind, r) for r in range(rounds) for kind in ("send", "receive")), 0, ())
    recorder = Recorder()
    engine = Engine(recorder, Job({"output": np.zeros(rounds)}, "sum", 0), keep_rounds=False)  # type: ignore[arg-type]
    engine.load(steps)
    more, calls = engine.pump(), 1
    assert [kind for kind, _ in recorder.posted[: SOON + 1]] == ["receive"] * SOON + ["send"]
    assert more
    while more:
        before = len(recorder.posted)
        more, calls = engine.pump(), calls + 1
        assert len(recorder.posted) <= before + 4, "a few at a time"
    kinds = [kind for kind, _ in recorder.posted]
    assert kinds.count("receive") == rounds, "all that can be posted is, in the end"
    assert kinds.count("send") == 1, "the next round's send waits for this one's"
    assert calls > 1
    assert len(recorder.posted) == len(set(recorder.posted))


@pytest.mark.parametrize("late_first", [True, False])
def test_where_nobody_is_late_nothing_is_begun(late_first: bool) -> None:
    """The late rank comes within the grace: no pre-work is begun, and all is reduced by all."""
    import time

    plan, world = Plan(all_pairs.adaptive(3, 4)), LocalWorld(3)
    executors = in_threads([partial(Executor, plan, world.transport(r), grace_s=10.0) for r in range(3)])
    data = [np.full(1000, 1.0 + rank, np.float32) for rank in range(3)]

    def call(rank: int) -> None:
        time.sleep(0.1 * ((rank != 2) == late_first))
        executors[rank].all_reduce(data[rank])

    start = time.monotonic()
    in_threads([partial(call, rank) for rank in range(3)])
    assert time.monotonic() - start < 5.0, "the grace ends when the late rank is there"
    assert [executor.cut for executor in executors] == [0, 0, 0]
    assert all((array == 6.0).all() for array in data)
    for executor in executors:
        executor.close()
