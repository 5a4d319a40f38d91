"""The executor on gloo: forked processes, every algorithm, size, type and operation, element by element."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="running needs the `run` extra: pip install -e .[run]")

import numpy as np  # noqa: E402

from latecomer.runtime.executor import Executor  # noqa: E402
from latecomer.runtime.forked import Gloo, run_forked  # noqa: E402
from latecomer.runtime.plan import Plan  # noqa: E402
from latecomer.runtime.program_plan import ProgramPlan  # noqa: E402
from latecomer.runtime.tags import NUMBERS, SLOTS, tags_of  # noqa: E402
from latecomer.runtime.transports.torch_p2p import TorchTransport  # noqa: E402
from latecomer.schedules.errors import InputError  # noqa: E402
from tests.runtime.cases import NAMES, contributions, expected, numpy_dtype, schedule, schedules  # noqa: E402

TYPES = ("float32", "float64", "bfloat16", "int64")
LARGE = 2**20 + 3


def tensor(array: Any, dtype: str) -> Any:
    return torch.from_numpy(array.astype(np.float64)).to(getattr(torch, dtype))


@functools.lru_cache(maxsize=64)
def known(ranks: int, elements: int, dtype: str, op: str) -> Any:
    """(contributions, result), made before the fork where that pays."""
    data = contributions(ranks, elements, numpy_dtype(dtype), elements)
    return data, expected(data, op)


def wrong(executor: Executor, ranks: int, rank: int, elements: int, dtype: str, op: str = "sum") -> list[str]:
    """One call; what is wrong with its result."""
    data, result_wanted = known(ranks, elements, dtype, op)
    mine = tensor(data[rank], dtype)
    out = torch.empty_like(mine) if elements % 2 else None
    result = executor.all_reduce(mine, op=op, out=out)
    good = np.array_equal(result.to(torch.float64).numpy(), result_wanted)
    return [] if good else [f"{executor.plan.name}: {elements} {dtype}, {op}"]


def everything(plans: list[Any], ranks: int, rank: int, large: Sequence[str]) -> list[str]:
    """The small sizes in all types, the large one in the types of `large`."""
    found = []
    for plan in plans:
        executor = Executor(plan, TorchTransport(), timeout_s=30.0)
        for elements in (1, 7, 1000):
            for dtype in TYPES:
                found += wrong(executor, ranks, rank, elements, dtype)
        for dtype in large:
            found += wrong(executor, ranks, rank, LARGE, dtype)
        executor.close()
    return found


def on_gloo(ranks: int, work: Any, timeout_s: float = 120.0) -> list[Any]:
    """The values of `work(rank)` on every rank of a gloo group."""
    gloo = Gloo(ranks)

    def joined(rank: int) -> Any:
        gloo.join(rank)
        return work(rank)

    try:
        outcomes = run_forked(ranks, joined, timeout_s=timeout_s)
    finally:
        gloo.close()
    assert [outcome.error for outcome in outcomes if outcome.error] == []
    return [outcome.value for outcome in outcomes]


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 7, 8])
def test_every_algorithm(ranks: int) -> None:
    plans = [
        Plan(built)
        for i, name in enumerate(NAMES)  # every rank is late for some algorithm
        if (built := schedule(name, ranks, late=i % ranks)) is not None
    ]
    large = TYPES[ranks % 4 :][:1]
    known(ranks, LARGE, large[0], "sum")
    assert on_gloo(ranks, lambda rank: everything(plans, ranks, rank, large)) == [[]] * ranks


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 7, 8])
def test_every_algorithm_size_type_and_late_rank(ranks: int) -> None:
    for dtype in TYPES:
        known(ranks, LARGE, dtype, "sum")
    for late in range(ranks):
        plans = [Plan(built) for _, built in schedules(ranks, late)]
        found = on_gloo(ranks, lambda rank: everything(plans, ranks, rank, TYPES), timeout_s=900.0)  # noqa: B023
        assert found == [[]] * ranks


def test_sixteen_ranks() -> None:
    plans = [Plan(built) for name in ("circulant", "all_pairs", "adaptive") if (built := schedule(name, 16, 5))]
    assert len(plans) == 3

    def work(rank: int) -> list[str]:
        found = []
        for plan in plans:
            executor = Executor(plan, TorchTransport(), timeout_s=60.0)
            if rank == 5:
                time.sleep(0.05)
            found += wrong(executor, 16, rank, 1000, "float32")
            executor.close()
        return found

    assert on_gloo(16, work) == [[]] * 16


def test_operations_and_groups_of_messages() -> None:
    plans = [Plan(built) for name, built in schedules(4, late=1) if name in ("ring", "all_pairs", "tiling")]

    def work(rank: int) -> list[str]:
        found = []
        for plan in plans:
            for grouped in (False, True):  # as NCCL wants it: a round is one group
                transport = TorchTransport()
                transport.grouped = grouped
                executor = Executor(plan, transport, timeout_s=30.0)
                for op in ("avg", "min", "max", "prod"):
                    found += wrong(executor, 4, rank, 101, "float64", op)
                found += wrong(executor, 4, rank, 1000, "float32")
                found += wrong(executor, 4, rank, 3, "int32")
                executor.close()
        return found

    assert on_gloo(4, work) == [[]] * 4


def test_executors_of_two_threads_on_one_group() -> None:
    """The ranks begin with different ones, and calls and sizes are the same: only the slot tells messages apart."""
    plan = Plan(dict(schedules(2, late=1))["ring"])

    def work(rank: int) -> list[float]:
        executors = [Executor(plan, TorchTransport(), timeout_s=20.0) for _ in range(2)]
        buffers = [torch.full((64,), value) for value in (1.0, 100.0)]

        def call(i: int) -> None:
            executors[i].all_reduce(buffers[i])

        threads = [threading.Thread(target=call, args=(i,)) for i in ((0, 1) if rank == 0 else (1, 0))]
        for thread in threads:
            thread.start()
            time.sleep(0.3)
        for thread in threads:
            thread.join()
        return [float(value) for buffer in buffers for value in (buffer.min(), buffer.max())]

    assert on_gloo(2, work) == [[2.0, 2.0, 200.0, 200.0]] * 2


def test_open_transports_have_slots_of_their_own() -> None:
    def work(rank: int) -> str:
        kept = TorchTransport()
        for _ in range(2 * SLOTS):
            other = TorchTransport()
            assert other.slot != kept.slot
            other.close()
        others = [TorchTransport() for _ in range(SLOTS - 1)]
        assert len({kept.slot, *(other.slot for other in others)}) == SLOTS
        with pytest.raises(InputError) as caught:
            TorchTransport()
        others[3].close()
        assert TorchTransport().slot == others[3].slot
        return str(caught.value)

    assert on_gloo(1, work) == ["32 transports of this group are open; close executors that are not used"]


def test_tags_are_apart_and_fit() -> None:
    calls = [tags_of(slot, f"call {i}") for slot in range(SLOTS) for i in range(50)]
    apart = [set(calls[50 * slot : 50 * slot + 50]) for slot in range(SLOTS)]
    assert len(set().union(*apart)) == sum(map(len, apart))
    assert max(calls) | NUMBERS + 2 < 2**31
    assert all(not tag & (NUMBERS + 2) for tag in calls)


def test_a_part_of_the_world() -> None:
    plan = dict(schedules(3, late=2))["circulant"]

    def work(rank: int) -> list[str]:
        import torch.distributed as dist

        members = [0, 2, 3]
        group = dist.new_group(members)
        found = []
        if rank in members:
            executor = Executor(Plan(plan), TorchTransport(group), timeout_s=30.0)
            found = wrong(executor, 3, members.index(rank), 500, "float32")
        dist.barrier()  # nobody leaves while others still connect
        return found

    assert on_gloo(4, work) == [[]] * 4


def test_files_of_programs(shared_data: Any) -> None:
    from latecomer.codegen import msccl_xml

    programs = []
    for path in sorted(Path(shared_data("msccl-xml")).glob("*.xml")):
        program = msccl_xml.read(path.read_text(), str(path))
        if program.ranks == 8 and program.collective in ("allreduce", "allgather"):
            programs.append((program.collective, ProgramPlan(program)))
    assert programs

    def work(rank: int) -> list[str]:
        found = []
        for collective, plan in programs:
            executor = Executor(plan, TorchTransport(), timeout_s=30.0)
            if collective == "allreduce":
                found += wrong(executor, 8, rank, 1000, "float32")  # not a multiple: padded
                found += wrong(executor, 8, rank, 3 * plan.multiple, "int64")
            else:
                share = plan.multiple // 8 * 3
                buffer = torch.zeros(8 * share)
                buffer[rank * share : (rank + 1) * share] = rank + 1
                executor.all_reduce(buffer)
                if not torch.equal(buffer, torch.arange(1.0, 9.0).repeat_interleave(share)):
                    found.append(plan.name)
            executor.close()
        return found

    assert on_gloo(8, work) == [[]] * 8
