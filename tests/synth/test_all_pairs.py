"""All-pairs: correct for every n, number of segments and arrival point; the bound at every delay."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.bounds import bounds
from latecomer.schedules.check import check
from latecomer.schedules.errors import InputError
from latecomer.schedules.simulate import simulate
from latecomer.schedules.topology import Topology
from latecomer.synth.algorithms import all_pairs

SIZE, BETA_US = 10**9, 10**6  # 1 GB at 1 GB/s


@settings(max_examples=60, deadline=None)
@given(ranks=st.integers(2, 10), segments=st.integers(1, 9), delay=st.none() | st.fractions(0, 2))
def test_planned_for_any_delay_is_correct(ranks, segments, delay):
    check(all_pairs.schedule(ranks, segments, delay=delay))


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 7, 8])
def test_adaptive_is_correct_at_every_arrival_point(ranks):
    report = check(all_pairs.adaptive(ranks, 5))
    assert report.arrival_points == (6 if ranks > 2 else 1)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_synchronous_in_two_rounds(ranks):
    schedule = all_pairs.synchronous_schedule(ranks)
    check(schedule)
    assert schedule.rounds == 2


def test_rounds_of_the_full_completion():
    assert all_pairs.schedule(8, 32).rounds == 33


def test_the_straggler_owns_w_s():
    """w_s = max(0, ((n-2) - (n-1)d) / (n(n-2))), in whole segments (theory.md §5)."""
    ranks, segments, delay = 8, 64, Fraction(1, 2)
    schedule = all_pairs.schedule(ranks, segments, delay=delay)
    chunks = schedule.chunks
    owned = sum(chunks.fraction(c) for c in range(len(chunks)) if chunks.owners[c] == ranks - 1)
    assert 0 <= owned - ((ranks - 2) - (ranks - 1) * delay) / (ranks * (ranks - 2)) <= Fraction(1, segments * ranks)


def ratio(schedule, ranks: int, delay: float) -> float:
    topology, arrivals = Topology.switch(ranks, 1.0, 0.0), ArrivalProfile.late(ranks, ranks - 1, delay * BETA_US)
    return simulate(schedule, topology, arrivals, SIZE).time_us / bounds(topology, arrivals, SIZE).bound_us


DELAYS = [Fraction(i, 10) for i in range(11)] + [Fraction(3, 2), Fraction(2)]


@pytest.mark.parametrize("ranks", [3, 4, 7, 8, 12])
def test_the_delay_sweep(ranks):
    """m = 32, latency 0: at most 1.04 times the bound at every delay, planned and adaptive; at delay 0 the optimum."""
    adaptive = all_pairs.adaptive(ranks, 32)
    for delay in DELAYS:
        assert ratio(all_pairs.schedule(ranks, 32, delay=delay), ranks, float(delay)) <= 1.04
        assert ratio(adaptive, ranks, float(delay)) <= 1.04
    assert ratio(adaptive, ranks, 0.0) == pytest.approx(1.0)
    assert ratio(all_pairs.schedule(ranks, 32, delay=Fraction(0)), ranks, 0.0) == pytest.approx(1.0)


def test_the_delay_sweep_at_64():
    for delay in (Fraction(0), Fraction(1, 2), Fraction(1)):
        assert ratio(all_pairs.schedule(64, 32, delay=delay), 64, float(delay)) <= 1.04


def test_a_wrong_delay_costs_time_only():
    planned_late = all_pairs.schedule(8, 32, delay=Fraction(1))
    check(planned_late)
    assert 1.0 < ratio(planned_late, 8, 0.3) < 1.5
    assert ratio(all_pairs.schedule(8, 32, delay=Fraction(0)), 8, 1.0) > 1.5


def test_a_negative_delay_makes_no_sense():
    with pytest.raises(InputError, match="a delay of -1 message times makes no sense"):
        all_pairs.reducible(8, Fraction(-1))
