"""Schedules to operations to programs to text and back: within limits, right, and nobody waits for the late rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latecomer.codegen import msccl_xml
from latecomer.codegen.deadlock import _Run
from latecomer.codegen.from_schedule import operations
from latecomer.codegen.lower import Options, lower
from latecomer.codegen.targets import TARGETS, target
from latecomer.codegen.verify import examine
from latecomer.schedules.errors import InputError, LimitExceeded
from latecomer.schedules.program import Program
from latecomer.schedules.schedule import Schedule
from latecomer.synth.algorithms import all_pairs, ring

from .cases import STATIC, made, with_late
from .run_operations import run_operations

IN, OUT, BOTH = Options(), Options(in_place=False, out_of_place=True), Options(out_of_place=True)


def proven(schedule: Schedule, to: str, options: Options = IN) -> Program:
    """Lowered, written, read back, and proven for the target and against the rules of the house."""
    program = lower(schedule, to, options)
    again = msccl_xml.read(msccl_xml.write(program, to))
    assert again == program
    report = examine(again, to)
    assert not report.findings, [str(f) for f in report.findings[:3]]
    assert report.facts["rendezvous_safe"] is True
    return program


@pytest.mark.parametrize("to", sorted(TARGETS))
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 6, 7, 8])
def test_every_algorithm_for_every_target(to: str, ranks: int) -> None:
    for name in STATIC:
        schedule = made(name, ranks)
        if schedule is None:
            continue
        options = (IN, OUT, BOTH)[(ranks + len(name)) % (3 if target(to).both_placements else 2)]
        proven(with_late(schedule, ranks // 2), to, options)


@pytest.mark.parametrize("to", ["msccl-executor", "portable"])
@pytest.mark.parametrize("name", STATIC)
def test_sixteen_ranks(name: str, to: str) -> None:
    schedule = made(name, 16, 8)
    if schedule is not None:
        proven(schedule, to)


@pytest.mark.parametrize(("name", "chunks"), [("ring", 64), ("tiling", 63), ("circulant", 63), ("all_pairs", 1)])
def test_sixty_four_ranks(name: str, chunks: int) -> None:
    schedule = made(name, 64, chunks)
    assert schedule is not None
    program = proven(schedule, "portable")
    assert max(len(gpu.threadblocks) for gpu in program.gpus) <= 64
    if name == "circulant":
        assert max(len(gpu.threadblocks) for gpu in program.gpus) <= 2 * 2 * 6 + 2


@settings(max_examples=25, deadline=None)
@given(ranks=st.integers(2, 9), late=st.integers(0, 8), chunks=st.integers(1, 20), name=st.sampled_from(STATIC),
       delay=st.sampled_from([200.0, 500.0, 10_000.0]), to=st.sampled_from(sorted(TARGETS)),
       options=st.sampled_from([IN, OUT]))
def test_any_ranks_late_rank_chunks_and_delay(
    ranks: int, late: int, chunks: int, name: str, delay: float, to: str, options: Options
) -> None:
    schedule = made(name, ranks, chunks, delay)
    if schedule is not None:
        proven(with_late(schedule, late % ranks), to, options)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("name", STATIC)
def test_operations_add_in_one_order_whatever_the_timing(name: str, in_place: bool) -> None:
    schedule = made(name, 4, 4)
    if schedule is None:
        return
    ops = operations(with_late(schedule, 1), in_place=in_place)
    results = [run_operations(ops, seed) for seed in range(4)]
    assert all(sorted(value) == [0, 1, 2, 3] for rank in results[0] for value in rank.values())
    assert results.count(results[0]) == 4


def test_operations_read_well_and_carry_the_stage(golden: Callable[[str, str], None]) -> None:
    schedule = made("stragglar", 4, 3)
    assert schedule is not None
    ops = operations(schedule)
    golden("operations_stragglar_4.txt", str(ops) + "\n")
    assert {op.stage for op in ops.of(3)} == {1}
    assert {op.stage for op in ops.of(0)} == {0, 1}
    assert ops.stages == (0, 0, 0, 1)
    assert ops.messages == len({(op.round, op.peer, r) for r in range(4) for op in ops.of(r) if op.kind == "send"})


def test_a_schedule_that_decides_later_is_refused() -> None:
    with pytest.raises(InputError, match=r"schedule\.resolve"):
        operations(all_pairs.adaptive(4, 2))
    resolved = all_pairs.adaptive(4, 2).resolve(1)
    proven(resolved, "msccl-executor")


# -- programs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 4, 6, 8, 16])
def test_golden_files(ranks: int, golden: Callable[[str, str], None]) -> None:
    schedule = made("stragglar", ranks, ranks - 1)
    assert schedule is not None
    golden(f"stragglar_{ranks}.xml", msccl_xml.write(proven(schedule, "msccl-executor")))
    if ranks == 4:
        golden("stragglar_4_portable.xml", msccl_xml.write(proven(schedule, "portable"), "portable"))


@pytest.mark.parametrize("name", ["stragglar", "tiling", "circulant", "all_pairs"])
@pytest.mark.parametrize("to", ["msccl-executor", "portable"])
def test_the_early_ranks_finish_their_prework_without_the_late_one(name: str, to: str) -> None:
    schedule = made(name, 8, 8 if name != "stragglar" else None)
    assert schedule is not None
    late = 5
    schedule = with_late(schedule, late)
    program = lower(schedule, to)
    without = replace(program, gpus=tuple(g for g in program.gpus if g.id != late))
    run = _Run(without, capacity=2, per_message=1)
    run.run()
    moved: Counter[tuple[int, int]] = Counter()
    for (sender, receiver, _), count in run.used.items():
        moved[sender, receiver] += count
    expected: Counter[tuple[int, int]] = Counter()
    ops = operations(schedule, in_place=True)
    for rank in range(8):
        for op in ops.of(rank):
            if op.kind == "send" and op.stage == 0:
                expected[rank, op.peer] += op.length
    assert expected
    assert all(moved[pair] >= count for pair, count in expected.items())


def test_forwarding_is_one_step_where_the_target_has_it() -> None:
    fused = Counter(step.type for *_, step in lower(ring.schedule(8), "msccl-executor").steps())
    plain = Counter(step.type for *_, step in lower(ring.schedule(8), "rccl").steps())
    assert fused["rrcs"] > fused["rrc"]
    assert fused["rcs"] > fused["r"]
    assert set(plain) == {"s", "r", "re"}
    assert max(len(gpu.threadblocks) for gpu in lower(ring.schedule(8)).gpus) <= 2


def test_unequal_chunks_become_units() -> None:
    schedule = made("tiling", 4, 3, delay_us=200.0)
    assert schedule is not None
    assert not schedule.chunks.uniform
    program = proven(schedule, "msccl-executor")
    assert program.chunks == schedule.chunks.total
    assert max(step.cnt for *_, step in program.steps()) > 1


def test_limits_are_named() -> None:
    schedule = made("all_pairs", 4, 1)
    assert schedule is not None
    tight = replace(TARGETS["rccl"], threadblocks=2)
    with pytest.raises(LimitExceeded, match=r"needs 3 threadblocks.*Not even one chunk fits rccl: 4 ranks") as error:
        lower(schedule, tight)
    assert error.value.limit == "threadblocks"
    with pytest.raises(LimitExceeded) as error:
        lower(ring.schedule(4, 1200), "rccl")
    assert error.value.limit in ("nodes", "threadblocks", "channels")
    assert "largest number of chunks" in str(error.value)
    whole_messages = made("direct", 64)
    assert whole_messages is not None
    with pytest.raises(LimitExceeded, match="one message from rank 63 to rank 0 takes 65 steps") as error:
        lower(whole_messages, "portable")
    assert error.value.limit == "steps"


@pytest.mark.parametrize(("options", "to", "message"), [
    (Options(in_place=False), "rccl", "in-place calls, out-of-place calls, or both"),
    (BOTH, "msccl", "one file cannot serve in-place and out-of-place calls of msccl"),
    (Options(min_bytes=5, max_bytes=4), "rccl", "the size range 5 … 4 bytes is empty"),
])
def test_options_that_make_no_sense(options: Options, to: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        lower(ring.schedule(4), to, options)


def test_unknown_target() -> None:
    with pytest.raises(InputError, match="there are msccl, msccl-executor, portable, rccl"):
        target("nccl-2")


def test_reduce_scatter_is_spelt_per_target() -> None:
    program = replace(lower(ring.schedule(2)), collective="reduce_scatter")
    assert 'coll="reducescatter"' in msccl_xml.write(program, "rccl")
    assert 'coll="reduce_scatter"' in msccl_xml.write(program, "msccl")
    with pytest.raises(InputError, match="spell it differently"):
        msccl_xml.write(program, "portable")


def test_same_bytes_every_time() -> None:
    schedule = made("circulant", 7, 5)
    assert schedule is not None
    assert len({msccl_xml.write(lower(schedule)) for _ in range(3)}) == 1
