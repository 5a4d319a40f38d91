"""The executor over threads and numpy: every algorithm, size, type, operation and late rank, element by element."""

from __future__ import annotations

import random

import numpy as np
import pytest

from latecomer.runtime.executor import Executor
from latecomer.runtime.oracle import LocalGroup
from latecomer.runtime.plan import Plan
from latecomer.runtime.steps import compile_steps
from latecomer.runtime.transports.local import LocalWorld
from latecomer.schedules.errors import IncorrectSchedule, InputError
from tests.runtime.cases import NAMES, contributions, expected, numpy_dtype, schedule

pytest.importorskip("ml_dtypes", reason="bfloat16 in numpy needs the `run` extra")

TYPES = ("float32", "float64", "bfloat16", "int64")


def run(group: LocalGroup, elements: int, dtype: str, op: str = "sum", *, late: int = 0, delay_s: float = 0.0) -> None:
    ranks = len(group.executors)
    data = contributions(ranks, elements, numpy_dtype(dtype), elements)
    out_of_place = elements % 2 == 1
    before = [array.copy() for array in data]
    results = group.all_reduce(
        data, op=op, out_of_place=out_of_place, delays_s=[delay_s * (rank == late) for rank in range(ranks)]
    )
    for rank, result in enumerate(results):
        assert np.array_equal(result.astype(np.float64), expected(before, op)), f"rank {rank}"
        assert not out_of_place or np.array_equal(data[rank], before[rank]), "the input was written"


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_type_and_late_rank(name: str, ranks: int) -> None:
    for late in {0, ranks // 2, ranks - 1}:
        built = schedule(name, ranks, late)
        if built is None:
            pytest.skip(f"{name} does not serve {ranks} ranks")
        with LocalGroup(Plan(built)) as group:
            for elements in (1, 7, 1000):
                for dtype in TYPES:
                    run(group, elements, dtype, late=late)
            run(group, 1000, "float32", late=late, delay_s=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_a_large_message(name: str) -> None:
    built = schedule(name, 4 if name == "exact" else 8, 3)  # an exhaustive search of 8 ranks takes minutes
    assert built is not None
    with LocalGroup(Plan(built)) as group:
        run(group, 2**20 + 3, "float32", late=3, delay_s=0.02)


@pytest.mark.parametrize("name", ["tiling", "circulant", "all_pairs", "adaptive", "stragglar"])
def test_sixteen_ranks(name: str) -> None:
    built = schedule(name, 16, 5)
    assert built is not None
    with LocalGroup(Plan(built)) as group:
        run(group, 1000, "float32", late=5, delay_s=0.02)


@pytest.mark.parametrize("op", ["avg", "min", "max", "prod"])
def test_operations(op: str) -> None:
    for name in ("ring", "all_pairs", "circulant"):
        built = schedule(name, 4, 1)
        assert built is not None
        with LocalGroup(Plan(built)) as group:
            run(group, 100, "float64", op)
            run(group, 101, "float32", op)
            if op != "avg":
                run(group, 100, "int64", op)


@pytest.mark.parametrize("name", ["ring", "halving_doubling", "circulant", "all_pairs"])
def test_the_same_bits_whatever_the_timing(name: str) -> None:
    built = schedule(name, 8, 7)
    assert built is not None
    random.seed(7)
    data = [np.random.default_rng(rank).standard_normal(3000).astype(np.float32) for rank in range(8)]
    with LocalGroup(Plan(built)) as group:
        delays = [[0.0] * 8, [random.random() / 50 for _ in range(8)], [random.random() / 50 for _ in range(8)]]
        runs = [group.all_reduce([a.copy() for a in data], delays_s=delay) for delay in delays]
    for results in runs:
        assert all(result.tobytes() == runs[0][0].tobytes() for result in results), "ranks or runs differ"


def test_scratch_is_reused_and_smaller_than_the_message() -> None:
    built = schedule("circulant", 8, 7)
    assert built is not None
    elements = 1 << 16
    with LocalGroup(Plan(built)) as group:
        run(group, elements, "float32")
        memory = [id(executor._scratch["float32 cpu"]) for executor in group.executors]
        run(group, elements, "float32")
        assert memory == [id(executor._scratch["float32 cpu"]) for executor in group.executors]
        assert all(len(executor._scratch["float32 cpu"]) < elements for executor in group.executors)


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_every_course_of_the_adaptive_plan(ranks: int) -> None:
    built = schedule("adaptive", ranks, 1, chunks=6)
    assert built is not None
    plan = Plan(built)
    plan.prepare()  # raises where a branch does not begin as the pre-work does
    for cut in plan.cuts:
        with LocalGroup(Plan(built.resolve(cut))) as group:
            run(group, 1000, "float32", late=1)


def test_the_adaptive_plan_goes_on_from_wherever_it_is() -> None:
    built = schedule("adaptive", 4, 2, chunks=16)
    assert built is not None
    cuts = set()
    with LocalGroup(Plan(built)) as group:
        for delay in (0.0, 0.0, 0.001, 0.002, 0.005, 0.1):
            run(group, 200_000, "float32", late=2, delay_s=delay)
            cuts.add(group.executors[0].cut)
            assert len({executor.cut for executor in group.executors}) == 1
        assert group.executors[0].cut == 16
    assert len(cuts) > 1
    with LocalGroup(Plan(built)) as group:  # somebody else is late, and nobody at all
        run(group, 5000, "float32", late=0, delay_s=0.02)
        run(group, 5, "float32")


def test_empty_messages_and_wrong_calls() -> None:
    built = schedule("ring", 2, 0)
    assert built is not None
    with LocalGroup(Plan(built)) as group:
        assert [len(r) for r in group.all_reduce([np.zeros(0), np.zeros(0)])] == [0, 0]
        one = group.executors[0]
        with pytest.raises(InputError, match="no reduction is called 'xor'"):
            one.all_reduce(np.zeros(3), op="xor")
        with pytest.raises(InputError, match="avg needs a floating type, not int64"):
            one.all_reduce(np.zeros(3, np.int64), op="avg")
        with pytest.raises(InputError, match="contiguous"):
            one.all_reduce(np.zeros((4, 4))[:, 0])
        with pytest.raises(InputError, match="same number of elements"):
            one.all_reduce(np.zeros(3), out=np.zeros(4))


def test_a_plan_for_another_number_of_ranks_is_refused() -> None:
    built = schedule("ring", 4, 0)
    assert built is not None
    with pytest.raises(InputError, match="the plan is for 4 ranks, the group has 3"):
        Executor(Plan(built), LocalWorld(3).transport(0))


def test_a_plan_is_checked_before_it_runs() -> None:
    built = schedule("ring", 4, 0)
    assert built is not None
    damaged = built.model_copy(update={"transfers": built.transfers.where(built.transfers.round != 1)})
    with pytest.raises(IncorrectSchedule):
        Plan(damaged)


def test_steps_cover_the_message_and_nothing_more() -> None:
    built = schedule("all_pairs", 5, 4)
    assert built is not None
    plan = Plan(built)
    for elements in (1, 7, 1000, 12345):
        for rank in range(5):
            steps = compile_steps(plan.trunk, rank, elements)
            for step in steps.steps:
                for part in step.parts:
                    sizes = {place.stop - place.start for place in part if place is not None}
                    assert len(sizes) == 1
                    for place in part:
                        limit = steps.scratch if place and place.buffer == "scratch" else elements
                        assert place is None or 0 <= place.start < place.stop <= limit
