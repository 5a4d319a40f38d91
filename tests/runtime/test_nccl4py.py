"""The nccl4py transport against a stand-in of its library: threads are ranks, a group ends when all of it has moved."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from latecomer.runtime.data import compare, contribution, reference  # noqa: E402
from latecomer.runtime.executor import Executor  # noqa: E402
from latecomer.runtime.oracle import in_threads  # noqa: E402
from latecomer.runtime.plan import Plan  # noqa: E402
from latecomer.runtime.transports.nccl4py import Nccl4pyTransport  # noqa: E402
from latecomer.schedules.errors import InputError  # noqa: E402
from latecomer.synth.algorithms import all_pairs, ring, stragglar  # noqa: E402

STREAM = 77


class Wires:
    """Messages between two ranks in order; what is sent is copied when its receive is there."""

    def __init__(self) -> None:
        self.arrived = threading.Condition()
        self.sent: dict[tuple[int, int], list[Any]] = {}
        self.streams: set[int] = set()
        self.destroyed: list[int] = []


def library(wires: Wires) -> types.ModuleType:
    """What the transport uses of nccl.core (0.6)."""
    open_ = threading.local()

    class UniqueId:
        as_bytes = b"the id".ljust(128, b"\0")

        @staticmethod
        def from_bytes(data: bytes) -> UniqueId:
            assert data == UniqueId.as_bytes
            return UniqueId()

    class Communicator:
        def __init__(self, rank: int) -> None:
            self.rank = rank

        @classmethod
        def init(cls, nranks: int, rank: int, unique_id: UniqueId) -> Communicator:
            assert isinstance(unique_id, UniqueId)
            return cls(rank)

        def send(self, sendbuf: Any, peer: int, *, stream: int | None = None) -> None:
            wires.streams.add(stream or 0)
            with wires.arrived:
                wires.sent.setdefault((self.rank, peer), []).append(sendbuf.clone())
                wires.arrived.notify_all()

        def recv(self, recvbuf: Any, peer: int, *, stream: int | None = None) -> None:
            open_.receives.append((peer, self.rank, recvbuf))

        def destroy(self) -> None:
            wires.destroyed.append(self.rank)

    @contextmanager
    def group() -> Iterator[None]:
        open_.receives = []
        yield
        for peer, rank, buffer in open_.receives:
            with wires.arrived:
                assert wires.arrived.wait_for(lambda: wires.sent.get((peer, rank)), timeout=20.0)  # noqa: B023
                data = wires.sent[peer, rank].pop(0)
            assert len(data) == len(buffer)
            buffer.copy_(data)

    core = types.ModuleType("nccl.core")
    core.__dict__.update(UniqueId=UniqueId, Communicator=Communicator, group=group, get_unique_id=UniqueId)
    return core


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> Wires:
    wires = Wires()
    core = library(wires)
    package = types.ModuleType("nccl")
    package.__dict__["core"] = core
    monkeypatch.setitem(sys.modules, "nccl", package)
    monkeypatch.setitem(sys.modules, "nccl.core", core)
    monkeypatch.setattr(Nccl4pyTransport, "_stream", lambda self: STREAM)
    return wires


@pytest.mark.parametrize("plan", [
    ring.schedule(4, None), stragglar.schedule(4, 3), all_pairs.schedule(5, 2)
], ids=lambda s: s.provenance.algorithm)  # fmt: skip
def test_it_reduces(wires: Wires, plan: Any) -> None:
    ranks, elements = plan.ranks, 1003
    store = torch.distributed.HashStore()
    ready = Plan(plan)

    def work(rank: int) -> Any:
        executor = Executor(ready, Nccl4pyTransport(store, rank, ranks, "cpu"))
        buffer = torch.from_numpy(contribution(elements, 0, rank))
        executor.all_reduce(buffer)
        executor.close()
        return buffer.numpy()

    wanted = reference(elements, 0, ranks)
    for result in in_threads([partial(work, rank) for rank in range(ranks)]):
        compare(result, wanted, ranks, "float32")
    assert wires.streams == {STREAM}
    assert sorted(wires.destroyed) == list(range(ranks))
    assert not any(wires.sent.values())


def test_adaptive_plans_are_refused(wires: Wires) -> None:
    with pytest.raises(InputError, match="only orders streams"):
        Executor(Plan(all_pairs.adaptive(3, 2)), Nccl4pyTransport(torch.distributed.HashStore(), 0, 3, "cpu"))


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nccl", None)
    with pytest.raises(InputError, match=r"pip install 'latecomer\[nccl4py\]'"):
        Nccl4pyTransport(torch.distributed.HashStore(), 0, 1, "cpu")
