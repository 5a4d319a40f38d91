"""`torch`: any torch.distributed process group: gloo on CPU, NCCL on GPU.

A gloo work object does not say that it has ended until it is waited for, so two threads per peer wait, one for
sends and one for receives (the engine posts them in an order in which none waits for a later one); a waiting thread
holds no lock. With NCCL a wait only orders
streams, and messages go in groups (`latecomer.runtime.grouped`).
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

from latecomer.runtime.arrays import Arrays, TorchArrays
from latecomer.runtime.board import Board, StoreBoard
from latecomer.runtime.failures import PeerLost
from latecomer.runtime.tags import SLOTS
from latecomer.schedules.errors import InputError

_FOREVER: Final = timedelta(days=30)
"""Gloo's own timeout is not used: the executor has one that can say who is waited for."""

_lock: Final = threading.Lock()
_next: Final[dict[str, int]] = {}
"""Members of a group → the least number that none of its transports had."""
_open: Final[weakref.WeakSet[TorchTransport]] = weakref.WeakSet()


class TorchTransport:
    """The end of this process in `group` (None: the world).

    Every rank of the group must make and close its transports in the same order: they go by their `number`. On gloo,
    executors in several threads may share a group: the `slot` keeps messages of transports that are open apart. On NCCL
    messages pair up in the order in which they are posted, so collectives that run at the same time need groups of
    their own. Raises `InputError` where `SLOTS` transports are open. See `latecomer.runtime.transports.base.Transport`.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, store: Any = None) -> None:
        """`store` holds the board; None: torch's own of the world."""
        self.group: Any = dist.group.WORLD if group is None else group
        if not isinstance(self.group, dist.ProcessGroup):
            raise InputError("this process is not in the group; call init_process_group, or leave the rank out")
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.arrays: Arrays = TorchArrays()
        self.members = "-".join(map(str, dist.get_process_group_ranks(self.group)))
        self.number, self.slot = self._enter()
        self.backend = str(dist.get_backend(self.group))
        self.grouped = self.backend == "nccl"
        self.default_timeout_s = 600.0 if self.grouped else 1800.0
        prefix = f"latecomer/{self.members}/{self.number}"
        self.board: Board = StoreBoard(PrefixStore(prefix, store or _own_connection()))
        if self.grouped:  # all ranks must take part in a communicator's making; a late rank could not be late else
            dist.all_reduce(torch.zeros(1, device="cuda"), group=self.group)
        self._ended: queue.SimpleQueue[int | PeerLost] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._waiters: dict[int, queue.SimpleQueue[tuple[int, int, Any] | None]] = {}

    def _enter(self) -> tuple[int, int]:
        """A number whose slot is free, and the slot."""
        with _lock:
            taken = {other.slot for other in _open if other.members == self.members}
            if len(taken) == SLOTS:
                raise InputError(f"{SLOTS} transports of this group are open; close executors that are not used")
            number = next(i for i in itertools.count(_next.get(self.members, 0)) if i % SLOTS not in taken)
            _next[self.members] = number + 1
            _open.add(self)
            return number, number % SLOTS

    def send(self, key: int, peer: int, tag: int, data: torch.Tensor) -> None:
        """Post a send."""
        self._post(key, peer, -1 - peer, lambda: self.group.send([data], peer, tag))

    def receive(self, key: int, peer: int, tag: int, out: torch.Tensor) -> None:
        """Post a receive."""
        self._post(key, peer, peer, lambda: self.group.recv([out], peer, tag))

    def exchange(self, messages: Sequence[tuple[str, int, torch.Tensor]]) -> None:
        """Post `messages` as one group; with NCCL this orders the current stream and does not wait."""
        kinds = {"send": dist.isend, "receive": dist.irecv}
        posted = [
            dist.P2POp(kinds[kind], array, group=self.group, group_peer=peer) for kind, peer, array in messages
        ]
        for work in dist.batch_isend_irecv(posted):
            work.wait()

    def _post(self, key: int, peer: int, waiter: int, post: Any) -> None:
        try:
            work = post()
        except RuntimeError as error:
            raise PeerLost(peer, _short(error)) from error
        if waiter not in self._waiters:
            self._waiters[waiter] = queue.SimpleQueue()
            self._threads.append(threading.Thread(target=self._wait_for, args=(self._waiters[waiter],), daemon=True))
            self._threads[-1].start()
        self._waiters[waiter].put((key, peer, work))

    def _wait_for(self, posted: queue.SimpleQueue[tuple[int, int, Any] | None]) -> None:
        while (item := posted.get()) is not None:
            key, peer, work = item
            try:
                work.wait(_FOREVER)
            except RuntimeError as error:
                self._ended.put(PeerLost(peer, _short(error)))
                return
            del work, item
            self._ended.put(key)

    def wait(self, timeout_s: float) -> int | None:
        """The key of a message that ended, or None."""
        try:
            ended = self._ended.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(ended, PeerLost):
            raise ended
        return ended

    def close(self) -> None:
        """End the threads that wait for nothing; those in a wait end with the process."""
        with _lock:
            _open.discard(self)
        for posted in self._waiters.values():
            posted.put(None)
        deadline = time.monotonic() + 1.0
        for thread in self._threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
        self._waiters.clear()
        self._threads.clear()


def _own_connection() -> Any:
    """The world's store, over a connection of its own where it has such: a call that blocks blocks nobody else."""
    store: Any = _get_default_store()
    try:
        return store.clone()
    except (AttributeError, NotImplementedError, RuntimeError):
        return store


def _short(error: Exception) -> str:
    return str(error).strip().split("\n")[0][-160:]
