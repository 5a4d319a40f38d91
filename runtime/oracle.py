"""Running all ranks of a plan as threads of this process: the oracle of the tests, and a first look at a schedule."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latecomer.runtime.executor import Executor
from latecomer.runtime.plan import Plan
from latecomer.runtime.program_plan import ProgramPlan
from latecomer.runtime.transports.local import LocalWorld


class LocalGroup:
    """Executors of all ranks of `plan`, each in a thread of its own while it runs."""

    def __init__(self, plan: Plan | ProgramPlan, *, timeout_s: float = 20.0) -> None:
        world = LocalWorld(plan.ranks)
        self.executors: list[Executor] = in_threads(
            [partial(Executor, plan, world.transport(rank), timeout_s=timeout_s) for rank in range(plan.ranks)]
        )

    def all_reduce(
        self,
        data: Sequence[NDArray[Any]],
        *,
        op: str = "sum",
        out_of_place: bool = False,
        delays_s: Sequence[float] | None = None,
    ) -> list[NDArray[Any]]:
        """The result on each rank; `data` (one array a rank) is overwritten unless `out_of_place`."""

        def call(rank: int) -> NDArray[Any]:
            if delays_s is not None:
                time.sleep(delays_s[rank])
            out = np.zeros_like(data[rank]) if out_of_place else None
            result: NDArray[Any] = self.executors[rank].all_reduce(data[rank], op=op, out=out)
            return result

        return in_threads([partial(call, rank) for rank in range(len(data))])

    def close(self) -> None:
        """End the helper threads."""
        for executor in self.executors:
            executor.close()

    def __enter__(self) -> LocalGroup:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def in_threads(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of `calls`, run side by side; the first error, if any, once all have ended."""
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(i: int) -> None:
        try:
            results[i] = calls[i]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
