"""The checker: accepts what is right, and names round, rank and chunk of what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.check import check
from latecomer.schedules.chunks import Chunks
from latecomer.schedules.errors import IncorrectSchedule, InputError
from latecomer.schedules.schedule import Branch, Phase, Provenance, Schedule
from latecomer.schedules.topology import Topology
from latecomer.schedules.transfers import Moves, Transfers
from latecomer.synth.algorithms import all_pairs, ring, stragglar
from latecomer.synth.synthesize import synthesize

PHASES = (Phase(kind="prework", stage=0), Phase(kind="completion", stage=1))


def schedule(moves: Moves, *, ranks: int = 2, count: int = 1, **changes) -> Schedule:
    """Rank ranks-1 late; accumulators only unless the moves say otherwise."""
    fields = {
        "ranks": ranks,
        "binding": tuple(range(ranks)),
        "ports": "exclusive",
        "stages": (*(0,) * (ranks - 1), 1),
        "phases": PHASES,
        "chunks": Chunks.equal([0] * count),
        "provenance": Provenance(tool="test", algorithm="by hand"),
        "transfers": moves.build(),
    }
    return Schedule(**(fields | changes))


def swap() -> Moves:
    moves = Moves()
    moves.swap(0, 0, 1, 0, phase=1)
    return moves


def edited(good: Schedule, **columns) -> Schedule:
    rows = {name: getattr(good.transfers, name) for name in Transfers.__dataclass_fields__}
    return good.model_copy(update={"transfers": Transfers.of(*(rows | columns).values())})


def without(good: Schedule, row: int) -> Schedule:
    keep = np.ones(len(good.transfers), dtype=bool)
    keep[row] = False
    return good.model_copy(update={"transfers": good.transfers.where(keep), "patterns": ()})


def test_a_swap_reads_both_old_values():
    report = check(schedule(swap()))
    assert (report.ranks, report.rounds, report.transfers) == (2, 1, 2)


def test_a_missing_contribution_is_named():
    moves = Moves()
    moves.reduce(0, 1, 0, 0, phase=1)
    with pytest.raises(IncorrectSchedule, match=r"rank 1, chunk 0: at the end the contribution of rank 0 is missing"):
        check(schedule(moves))


def test_a_contribution_added_twice_is_named():
    moves = swap()
    moves.reduce(1, 0, 1, 0, phase=1)
    with pytest.raises(
        IncorrectSchedule, match=r"round 1, rank 1, chunk 0: the contribution of ranks 0, 1 is added a s"
    ):
        check(schedule(moves))


def test_the_error_carries_where():
    moves = swap()
    moves.reduce(1, 0, 1, 0, phase=1)
    with pytest.raises(IncorrectSchedule) as caught:
        check(schedule(moves, binding=(1, 0)))
    assert (caught.value.round, caught.value.rank, caught.value.chunk) == (1, 0, 0)  # in ranks, not roles
    assert caught.value.exit_code == 1


def test_overwriting_a_partial_sum_loses_it():
    moves = Moves()
    moves.copy(0, 1, 0, 0, phase=1)
    with pytest.raises(IncorrectSchedule, match=r"the contribution of rank 0 is overwritten and lost"):
        check(schedule(moves))


def test_sending_from_an_empty_relay_slot():
    moves = Moves()
    moves.copy(3, 0, 1, 0, phase=1, src_slot=2)
    with pytest.raises(
        IncorrectSchedule, match=r"round 3, rank 0, chunk 0: sends what it does not hold: its relay slot 2"
    ):
        check(schedule(moves))


def test_a_relay_neither_merges_nor_overwrites_its_own_partial():
    """Rank 1 passes rank 0's sum on to rank 2 through a slot, and still has its own contribution to give."""
    moves = Moves()
    moves.copy(0, 0, 1, 0, dst_slot=1)
    moves.reduce(1, 1, 2, 0, src_slot=1, phase=1)
    moves.reduce(2, 1, 2, 0, phase=1)
    moves.copy(3, 2, 0, 0, phase=1)
    moves.copy(4, 2, 1, 0, phase=1)
    check(schedule(moves, ranks=3))


def test_exclusive_ports_take_one_peer_a_round_and_shared_ones_several():
    moves = Moves()
    moves.reduce(0, [0, 1], 2, 0, phase=1)
    moves.copy(1, 2, [0, 1], 0, phase=1)
    check(schedule(moves, ranks=3, ports="shared"))
    with pytest.raises(IncorrectSchedule, match=r"round 1, rank 2, chunk 0: sends to ranks 0 and 1 in one round"):
        check(schedule(moves, ranks=3))


def test_several_chunks_to_one_peer_are_one_message():
    moves = Moves()
    moves.swap(0, 0, 1, [0, 1, 2], phase=1)
    check(schedule(moves, count=3))


def test_the_late_rank_waits_for_its_release():
    moves = Moves()
    moves.swap(0, 0, 1, 0, phase=0)
    with pytest.raises(
        IncorrectSchedule, match=r"rank 1, chunk 0: takes part in the prework before its arrival allows"
    ):
        check(schedule(moves))


def test_prework_that_waits_for_the_late_rank_through_data():
    moves = Moves()
    moves.reduce(0, 2, 0, 0, phase=1)
    moves.reduce(1, 0, 1, 0, phase=0)
    with pytest.raises(IncorrectSchedule, match="a prework transfer waits for data of a later arrival"):
        check(schedule(moves, ranks=3))


def test_a_copy_and_another_write_into_one_slot_in_one_round():
    moves = Moves()
    moves.copy(0, 0, 2, 0, dst_slot=1, phase=1)
    moves.reduce(0, 1, 2, 0, dst_slot=1, phase=1)
    with pytest.raises(IncorrectSchedule, match="copied over while another transfer of the round writes it"):
        check(schedule(moves, ranks=3, ports="shared"))


def test_a_transfer_to_itself():
    moves = Moves()
    moves.copy(0, 0, 0, 0)
    with pytest.raises(IncorrectSchedule, match="from a slot to itself"):
        check(schedule(moves))


def test_a_pattern_that_is_not_what_the_transfers_do():
    good = ring.schedule(4)
    bad = good.patterns[0].model_copy(update={"stride": 1})
    with pytest.raises(IncorrectSchedule, match=r"pattern 0 \(period 1, rounds 0 … 2\) is not what the transfers do"):
        check(good.model_copy(update={"patterns": (bad,)}))


def test_a_pattern_of_roles_that_are_not_there_is_refused():
    good = ring.schedule(4)
    with pytest.raises(ValueError, match="names roles, phases, chunks or rounds that the schedule does not have"):
        Schedule.model_validate(
            dict(good) | {"patterns": (good.patterns[0].model_copy(update={"roles": (0, 1, 2, 6)}),)}
        )


def test_owners_hold_the_partial_sums_when_the_prework_ends():
    good = stragglar.schedule(4)
    wrong = good.chunks.model_copy(update={"owners": (1, 1, 2)})
    with pytest.raises(IncorrectSchedule, match="rank 1, chunk 0: owns the chunk, but lacks the contribution of rank"):
        check(good.model_copy(update={"chunks": wrong}))


def test_what_a_certificate_says_of_the_schedule_is_checked():
    plan = synthesize(Topology.switch(4, 1.0), ArrivalProfile.late(4, 1, 1e6), 999, algorithm="stragglar")
    check(plan)
    for lie in ({"rounds": 1}, {"bound_rounds": 99}, {"bound_rounds": None}):
        with pytest.raises(IncorrectSchedule, match="the certificate says"):
            check(plan.model_copy(update={"certificate": plan.certificate.model_copy(update=lie)}))
    for impossible in ({"time_us": -1.0}, {"gap": float("nan")}, {"size_bytes": -7}, {"time_us": float("inf")}):
        text = plan.model_copy(update={"certificate": plan.certificate.model_copy(update=impossible)}).to_json()
        with pytest.raises(InputError, match="certificate"):
            Schedule.from_json(text)


def test_every_arrival_point_is_checked():
    good = all_pairs.adaptive(4, 3)
    assert check(good).arrival_points == 4
    broken = [Branch(prework_rounds=b.prework_rounds, transfers=b.transfers) for b in good.branches]
    broken[2] = Branch(prework_rounds=2, transfers=good.branches[1].transfers.shifted(1))
    with pytest.raises(IncorrectSchedule, match="after 2 pre-work rounds: "):
        check(good.model_copy(update={"branches": tuple(broken)}))


@pytest.mark.parametrize(
    "make", [lambda: stragglar.schedule(6), lambda: ring.schedule(5), lambda: all_pairs.schedule(4, 2)]
)
def test_no_transfer_can_be_left_out(make):
    """Every row of our schedules matters: the checker misses no deletion."""
    good = make()
    check(good)
    for row in range(len(good.transfers)):
        with pytest.raises(IncorrectSchedule):
            check(without(good, row))


def test_every_swapped_peer_is_found():
    good = stragglar.schedule(8)
    moves, found = good.transfers, 0
    for row in range(0, len(moves), 5):
        dst = moves.dst.copy()
        dst[row] = (dst[row] + 1) % 8
        with pytest.raises(IncorrectSchedule):
            check(edited(good, dst=dst))
        found += 1
    assert found > 10


def test_reduce_scatter_and_allgather_have_their_own_postconditions():
    owners = [0, 1, 2]
    half = {
        "ranks": 3,
        "stages": (0, 0, 0),
        "phases": (Phase(kind="synchronous", stage=0),),
        "chunks": Chunks.equal(owners),
    }
    scatter = schedule(Moves(), **half, transfers=ring.reduce_scatter(3, owners), collective="reduce_scatter")
    check(scatter)
    check(scatter.model_copy(update={"transfers": ring.all_gather(3, owners), "collective": "allgather"}))
    with pytest.raises(IncorrectSchedule, match="missing"):
        check(scatter.model_copy(update={"collective": "allreduce", "patterns": ()}))
