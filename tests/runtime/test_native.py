"""The generated library, called from Python through ctypes; on a CPU through the stand-in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latecomer.codegen.nccl_program import write_project
from latecomer.runtime.native import Communicator, Library, build, load, shim_directory
from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.errors import InputError, LatecomerError
from latecomer.schedules.topology import Topology
from latecomer.synth.synthesize import synthesize

RANKS = 4


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    place = tmp_path_factory.mktemp("native")
    arrivals = ArrivalProfile.late(RANKS, 2, 1e6)
    write_project(synthesize(Topology.switch(RANKS, 450), arrivals, 1 << 26, algorithm="tiling", chunks=6), place)
    return load(build(place))


def on_every_rank(library: Library, work: Callable[[int, Communicator], Any], **connect: Any) -> list[Any]:
    """What `work(rank, communicator)` returns on each rank, each in a thread of its own."""
    unique_id, results = library.unique_id(), [None] * RANKS
    errors: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            with library.connect(
                rank, unique_id, connect.get("max_bytes", 1 << 16), late_rank=connect.get("late_rank")
            ) as c:
                results[rank] = work(rank, c)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(r,)) for r in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64"])
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
def test_numpy(library: Library, dtype: str, op: str) -> None:
    def data(rank: int) -> np.ndarray[Any, Any]:
        return np.random.default_rng(rank).integers(1, 5, 1001).astype(dtype)

    def work(rank: int, comm: Communicator) -> np.ndarray[Any, Any]:
        send, recv = data(rank), np.zeros(1001, dtype)
        comm.allreduce(send, recv, op=op)
        comm.wait()
        assert np.array_equal(send, data(rank))
        return recv

    numpy_op = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    want = numpy_op.reduce([data(r) for r in range(RANKS)])
    for got in on_every_rank(library, work, late_rank=1):
        assert np.array_equal(got, want)


def test_torch(library: Library) -> None:
    torch = pytest.importorskip("torch", reason="no torch: numpy arrays are tested")

    def work(rank: int, comm: Communicator) -> Any:
        gradient = torch.arange(777, dtype=torch.bfloat16).remainder(13) + rank
        comm.allreduce(gradient, op="avg")
        comm.wait()
        return gradient

    want = torch.arange(777, dtype=torch.bfloat16).remainder(13) + 1.5
    assert all(torch.equal(got, want) for got in on_every_rank(library, work))


def test_many_calls_in_place_and_at_odd_addresses(library: Library) -> None:
    def work(rank: int, comm: Communicator) -> float:
        buffer = np.full(1000, rank + 1.0, np.float32)[3:]
        for _ in range(5):
            comm.allreduce(buffer, op="avg")
        comm.allreduce(buffer, op="max")
        comm.wait()
        return float(buffer.min()) + float(buffer.max())

    assert on_every_rank(library, work) == [5.0] * RANKS


def test_what_cannot_be_reduced_is_refused(library: Library) -> None:
    def work(rank: int, comm: Communicator) -> None:
        good = np.zeros(8, np.float32)
        for arguments, message in [
            ({"send": [1.0]}, "torch tensor or a numpy array, not list"),
            ({"send": good[::2]}, "contiguous"),
            ({"send": np.zeros(8, np.uint16)}, "buffers of uint16"),
            ({"send": good, "recv": np.zeros(7, np.float32)}, "they must be alike"),
            ({"send": good, "op": "mean"}, "no operation is called 'mean'"),
        ]:
            with pytest.raises(InputError, match=message):
                comm.allreduce(**arguments)
        with pytest.raises(LatecomerError, match="more than the 65536 bytes"):
            comm.allreduce(np.zeros(1 << 20, np.float32))
        with pytest.raises(LatecomerError, match="avg is for floating types"):
            comm.allreduce(np.zeros(8, np.int32), op="avg")
        comm.allreduce(np.zeros(0, np.float32))
        comm.close()
        comm.close()
        with pytest.raises(InputError, match="closed"):
            comm.wait()

    on_every_rank(library, work)


def test_a_wrong_late_rank_and_a_wrong_id_are_refused(library: Library) -> None:
    with pytest.raises(LatecomerError, match="late_rank is 9"):
        on_every_rank(library, lambda rank, comm: None, late_rank=9)
    with pytest.raises(InputError, match="128 bytes, not 3"):
        library.connect(0, b"abc", 1)


def test_a_rank_that_does_not_come_is_an_error_not_a_hang(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_SHIM_TIMEOUT_S", "4")

    def work(rank: int, comm: Communicator) -> None:
        if rank != 1:
            comm.allreduce(np.zeros(100, np.float32))
            with pytest.raises(LatecomerError, match="has failed"):
                comm.wait()

    on_every_rank(library, work)


def test_build_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no allreduce\.cu"):
        build(tmp_path)
    (tmp_path / "allreduce.cu").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"no g\+\+ found"):
        build(tmp_path)
    with pytest.raises(InputError, match="no nvcc found"):
        build(tmp_path, target="cuda")
    with pytest.raises(InputError, match="cannot load"):
        load(tmp_path / "none.so")
    assert (shim_directory() / "nccl.h").is_file()
