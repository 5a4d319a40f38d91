"""Running steps in groups: one group of sends and receives a round, on runtimes whose order is that of a stream (NCCL).

Everything is enqueued from the host without waiting. A group holds the messages of a round that do not depend on each
other; additions on what a group brings follow it on the same stream. As every rank's groups follow the order of its
list, in which the least unfinished message can always move (`latecomer.codegen.operations`), no group waits for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from latecomer.runtime.arrays import Arrays
from latecomer.runtime.engine import Job
from latecomer.runtime.steps import Step

Message = tuple[str, int, Any]
"""(send or receive, peer, array)."""


@runtime_checkable
class GroupedTransport(Protocol):
    """A transport that takes a group of messages at once."""

    arrays: Arrays

    def exchange(self, messages: Sequence[Message]) -> None:
        """Post `messages` as one group; what is enqueued after this call sees them done."""


def run_grouped(transport: GroupedTransport, steps: Sequence[Step], job: Job) -> None:
    """One call on one rank. Messages between two ranks pair up in order, so tags are not needed."""
    waiting: set[int] = set()
    group: list[Message] = []
    after: list[int] = []

    def flush() -> None:
        if group:
            transport.exchange(group)
        group.clear()
        for i in after:
            _local(transport.arrays, steps[i], job)
        after.clear()
        waiting.clear()

    number = -1
    for i, step in enumerate(steps):
        if not step.parts:
            continue
        behind = not waiting.isdisjoint(_ancestors(steps, i))
        if step.kind in ("send", "receive"):
            if behind or step.round != number:
                flush()
                number = step.round
            group.append((step.kind, step.peer, _message(transport.arrays, step, job)))
            waiting.add(i)
        elif behind:
            after.append(i)
            waiting.add(i)
        else:
            _local(transport.arrays, step, job)
    flush()


def _ancestors(steps: Sequence[Step], i: int) -> list[int]:
    """What step i depends on, looking through steps without elements."""
    found, open_ = [], list(steps[i].deps)
    while open_:
        j = open_.pop()
        if steps[j].parts:
            found.append(j)
        else:
            open_ += steps[j].deps
    return found


def _message(arrays: Arrays, step: Step, job: Job) -> Any:
    if step.kind == "receive":
        return job.view(step.parts[0].dst)
    if len(step.parts) == 1:
        return job.view(step.parts[0].src)
    whole = arrays.empty(sum(len(job.view(part.src)) for part in step.parts), job.view(step.parts[0].src))
    first = 0
    for part in step.parts:
        piece = job.view(part.src)
        arrays.copy(piece, whole[first : first + len(piece)])
        first += len(piece)
    return whole


def _local(arrays: Arrays, step: Step, job: Job) -> None:
    for part in step.parts:
        if step.kind == "reduce":
            arrays.reduce(job.op, job.view(part.src), job.view(part.other), job.view(part.dst))
        else:
            arrays.copy(job.view(part.src), job.view(part.dst))
