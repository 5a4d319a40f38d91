"""Running ranks as forked processes of this one: torch is imported once, not once a rank (2.4 CPU-seconds each).

For tests and measurements; a job runs under torchrun. Nothing is left behind: what has not ended by the deadline is
killed, by the process id it was started under.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What became of a rank. `error` is a traceback, or says what ended it; `value` is what the work returned."""

    value: Any
    error: str | None


def run_forked(
    ranks: int,
    work: Callable[[int], Any],
    *,
    timeout_s: float,
    meddle: Callable[[Sequence[int]], None] = lambda pids: None,
) -> list[Outcome]:
    """`work(rank)` in a process for each rank. `meddle` is called with their process ids once all have started."""
    pids, pipes = [], []
    for rank in range(ranks):
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: the child uses none
            pid = os.fork()
        if pid == 0:
            os.close(reader)
            _child(rank, work, writer)
        os.close(writer)
        pids.append(pid)
        pipes.append(reader)
    try:
        meddle(pids)
        texts = _read(pipes, time.monotonic() + timeout_s)
    finally:
        for pid in pids:
            _end(pid)
        for reader in pipes:
            os.close(reader)
    return [_outcome(text, timeout_s) for text in texts]


def _child(rank: int, work: Callable[[int], Any], writer: int) -> None:
    """Never returns: a child must not go on in the parent's program."""
    try:
        outcome = Outcome(work(rank), None)
    except BaseException:
        outcome = Outcome(None, traceback.format_exc())
    try:
        data = memoryview(pickle.dumps(outcome))
        while data:
            data = data[os.write(writer, data) :]
    finally:
        os._exit(0)


def _read(pipes: Sequence[int], deadline: float) -> list[bytes]:
    """Everything from each pipe until it is closed, or until the deadline."""
    texts = dict.fromkeys(pipes, b"")
    open_ = set(pipes)
    while open_ and time.monotonic() < deadline:
        for pipe in select.select(list(open_), [], [], 0.5)[0]:
            piece = os.read(pipe, 1 << 16)
            texts[pipe] += piece
            if not piece:
                open_.discard(pipe)
    return [texts[pipe] for pipe in pipes]


def _end(pid: int) -> None:
    ended, _ = os.waitpid(pid, os.WNOHANG)
    if not ended:
        time.sleep(0.05)
        ended, _ = os.waitpid(pid, os.WNOHANG)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _outcome(text: bytes, timeout_s: float) -> Outcome:
    if not text:
        return Outcome(None, f"killed, or not done after {timeout_s:g} s")
    outcome: Outcome = pickle.loads(text)
    return outcome


class Gloo:
    """A gloo group of forked ranks that meet in a file: `join(rank)` in the child, `close` in the parent."""

    def __init__(self, ranks: int, interface: str = "lo") -> None:
        import torch  # before the fork, so that it is imported once
        import torch.distributed as dist

        torch.set_num_threads(1)
        self._dist, self._ranks, self._interface = dist, ranks, interface
        self._folder = tempfile.TemporaryDirectory(prefix="latecomer-")

    def join(self, rank: int, timeout_s: float = 300.0) -> Any:
        """Make this process rank `rank` of the world; returns the store."""
        os.environ["GLOO_SOCKET_IFNAME"] = self._interface
        file_store: Any = self._dist.__dict__["FileStore"]  # torch's stubs do not list it
        store = file_store(os.path.join(self._folder.name, "store"), self._ranks)
        self._dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=self._ranks, timeout=timedelta(seconds=timeout_s)
        )
        return store

    def close(self) -> None:
        """Remove the file."""
        self._folder.cleanup()
