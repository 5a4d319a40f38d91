"""`Engine`: runs one rank's steps, each as soon as what it depends on is done.

Additions and copies run at once, receives are posted as soon as their place is free, sends by priority: the lowest
round first, and a later round's sends only when those of earlier rounds have left. On a network whose flows share a
port a later segment would otherwise take bandwidth from the exchange that everyone waits for (measured: 1.3 to 1.9
times slower). The order of additions into a place is an order of dependencies, so the result has the same bits however
messages overtake each other.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from latecomer.runtime.arrays import Arrays
from latecomer.runtime.steps import Range, Step, Steps
from latecomer.runtime.transports.base import Transport

NO_LIMIT = 1 << 60
SOON = 3
"""Receives of so many rounds, from that of the next send on, are posted before it."""
_NOTHING = Steps((), 0, ())


@dataclass(frozen=True)
class Job:
    """What the steps work on: buffers by name, the reduction, and the bits that tags of this call begin with."""

    buffers: Mapping[str, Any]
    op: str
    tags: int

    def view(self, place: Range | None) -> Any:
        """The elements of `place`."""
        assert place is not None
        return self.buffers[place.buffer][place.start : place.stop]


class Engine:
    """One call on one rank. `load`, `pump`, then `ended` for each key that the transport hands back.

    Steps of rounds ≥ `limit` are not started; `started` is one more than the highest round in which something was sent.
    With `sends_begin` (where nobody knows yet which rounds will run) a round's other steps wait for its first send.
    """

    def __init__(self, transport: Transport, job: Job, *, keep_rounds: bool, ahead: int = 0) -> None:
        self._transport, self._job = transport, job
        self._arrays: Arrays = transport.arrays
        self._keep_rounds, self._ahead = keep_rounds, ahead
        self.steps: tuple[Step, ...] = ()
        self.limit = NO_LIMIT
        self.sends_begin = False
        self.started = 0
        self._done: list[bool] = []
        self._posted: list[bool] = []
        self._staged: dict[int, Any] = {}
        self._flying: dict[int, int] = {}
        """Sends on their way → their rounds."""
        self.done = 0
        self.load(_NOTHING)

    # -- state ------------------------------------------------------------------------------------------------------

    def load(self, steps: Steps) -> None:
        """Take `steps`; those done or posted before must be the first of them (`Plan.branch` sees to it).

        O(steps), in C but for those done before: the late rank begins with this, and after a cut everyone does.
        """
        graph = self._graph = steps.graph
        self.steps = steps.steps
        count = len(self.steps)
        self._done = (self._done + [False] * count)[:count]
        self._posted = (self._posted + [False] * count)[:count]
        self._missing = list(graph.missing)
        self._unsent = dict(graph.sends)
        """Round → its sends that have not left."""
        for i, done in enumerate(self._done):
            if done:
                for j in graph.after[i]:
                    self._missing[j] -= 1
                if graph.message[i] and self.steps[i].kind == "send":
                    self._count_sent(self.steps[i].round)
        self._rounds = sorted(self._unsent)
        self._queues = {
            kind: {peer: deque(i for i in messages if not self._posted[i]) for peer, messages in by_peer.items()}
            for kind, by_peer in graph.queues.items()
        }
        """Messages not posted, by peer, in list order."""
        self._local = [i for i in graph.local if not self._missing[i] and not self._posted[i]]
        """Steps without a message that can run: ascending, so a heap."""

    def _count_sent(self, number: int) -> bool:
        """A send of round `number` has left; True if it was the last."""
        self._unsent[number] -= 1
        if self._unsent[number]:
            return False
        del self._unsent[number]
        return True

    @property
    def finished(self) -> bool:
        """Every step is done."""
        return self.done == len(self.steps)

    def through(self, round: int) -> bool:
        """Every step of the rounds before `round` is done."""
        return all(done or step.round >= round for done, step in zip(self._done, self.steps, strict=True))

    def unfinished(self) -> list[int]:
        """Steps that are posted or could be, in list order."""
        return [i for i, done in enumerate(self._done) if not done and not self._missing[i]]

    # -- progress ---------------------------------------------------------------------------------------------------

    def ended(self, key: int) -> None:
        """Step `key`, a message, has ended."""
        step = self.steps[key]
        if step.kind == "send":
            self._staged.pop(key, None)
            self._flying.pop(key, None)
            if self._count_sent(step.round):
                self._rounds.remove(step.round)
        self._finish(key)

    def _finish(self, i: int) -> None:
        self._done[i] = True
        self.done += 1
        for j in self._graph.after[i]:
            self._missing[j] -= 1
            if not self._missing[j] and not self._posted[j] and not self._graph.message[j]:
                heapq.heappush(self._local, j)

    def pump(self) -> bool:
        """Start what may start. False: nothing more can until a message ends; True: there are receives for later,
        to be posted by further calls while nothing else is to be done."""
        self._run_locals()
        # Receives first: what tells a sender that its message may come must not queue behind our data. But those for
        # later a few at a time: to post a hundred takes as long as a round.
        soon = (self._rounds[0] if self._rounds else NO_LIMIT) + SOON
        self._post_receives(soon)
        while (i := self._next("send", self._may_send)) >= 0:
            if self.steps[i].round >= self.started:
                self.started = self.steps[i].round + 1
                self._post_receives(soon)
            self._post_send(i)
        self._run_locals()
        return self._post_receives(NO_LIMIT, most=4)

    def _post_receives(self, before: int, most: int = NO_LIMIT) -> bool:
        """At most `most` of those of rounds < `before` whose place is free; True if there may be more."""
        while most and (i := self._next("receive", lambda i: self.steps[i].round < before and self._is_open(i))) >= 0:
            step = self.steps[i]
            self._transport.receive(i, step.peer, self._job.tags | step.number, self._job.view(step.parts[0].dst))
            most -= 1
        return not most

    def _next(self, kind: str, may: Callable[[int], bool]) -> int:
        """The first message of `kind` to post now, or -1.

        Those with one peer keep their order, so a transport may wait for them one after another: by the argument of
        `latecomer.codegen.operations` the least of them never waits for a later one.
        """
        queues = self._queues[kind]
        i = min((queue[0] for queue in queues.values() if queue and not self._missing[queue[0]]), default=-1)
        if i < 0 or not may(i):
            return -1
        queues[self.steps[i].peer].popleft()
        self._posted[i] = True
        return i

    def _run_locals(self) -> None:
        while self._local and self._is_open(self._local[0]):
            i = heapq.heappop(self._local)
            self._posted[i] = True
            self._run_local(i)

    def _may_send(self, i: int) -> bool:
        number = self.steps[i].round
        if number >= self.limit:
            return False
        first = self._rounds[0] if self._keep_rounds else min(self._flying.values(), default=number)
        return number <= first + self._ahead

    def _is_open(self, i: int) -> bool:
        """Its round has begun, where beginning is by sending: a receive that nobody answers cannot be taken back."""
        number = self.steps[i].round
        return number < self.limit and (number < self.started or not self.sends_begin)

    def _run_local(self, i: int) -> None:
        step, job = self.steps[i], self._job
        for part in step.parts if step.kind in ("reduce", "copy") else ():
            if step.kind == "reduce":
                self._arrays.reduce(job.op, job.view(part.src), job.view(part.other), job.view(part.dst))
            else:
                self._arrays.copy(job.view(part.src), job.view(part.dst))
        self._finish(i)

    def _post_send(self, i: int) -> None:
        step, job = self.steps[i], self._job
        data = job.view(step.parts[0].src) if len(step.parts) == 1 else self._gathered(i)
        self._flying[i] = step.round
        self._transport.send(i, step.peer, job.tags | step.number, data)

    def _gathered(self, i: int) -> Any:
        """A message whose parts are not together in memory, put together."""
        pieces = [self._job.view(part.src) for part in self.steps[i].parts]
        whole = self._arrays.empty(sum(len(piece) for piece in pieces), pieces[0])
        first = 0
        for piece in pieces:
            self._arrays.copy(piece, whole[first : first + len(piece)])
            first += len(piece)
        self._staged[i] = whole
        return whole
