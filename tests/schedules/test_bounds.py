"""The lower bounds against theory.md §2: closed forms, the known hard case, monotony, rounds."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.bounds import bandwidth_bound, bounds, round_bound, schedule_round_bound
from latecomer.schedules.errors import InputError
from latecomer.schedules.topology import Link, Topology
from latecomer.synth.algorithms import all_pairs, halving_doubling, ring, stragglar


@pytest.mark.parametrize("n", range(2, 12))
def test_nobody_late_is_patarasuk_and_yuan(n):
    assert bandwidth_bound([Fraction(0)] * n) == Fraction(2 * (n - 1), n)


@pytest.mark.parametrize(("n", "k"), [(n, k) for n in range(2, 9) for k in range(1, n)])
def test_k_late_together(n, k):
    """(n+k-1)/n when the others had time enough."""
    assert bandwidth_bound([Fraction(0)] * (n - k) + [Fraction(10)] * k) == Fraction(n + k - 1, n)


@given(n=st.integers(3, 12), delay=st.fractions(0, 3))
def test_one_late_rank_with_a_short_delay(n, delay):
    expected = max(Fraction(1), (2 * (n - 1) - (n - 1) * delay) / Fraction(n))
    assert bandwidth_bound([Fraction(0)] * (n - 1) + [delay]) == expected


def test_the_third_term_binds():
    """a = (0, 0, 5, 5⅓): plain water-filling says 1, the truth is 1.083."""
    assert bandwidth_bound([Fraction(0), Fraction(0), Fraction(5), Fraction(16, 3)]) == Fraction(13, 12)


@given(st.lists(st.fractions(0, 4), min_size=2, max_size=7))
def test_a_later_last_rank_never_hurts_and_the_range_is_right(arrivals):
    a = sorted(arrivals)
    n = len(a)
    assert 1 <= bandwidth_bound(a) <= Fraction(2 * (n - 1), n)
    assert bandwidth_bound([*a[:-1], a[-1] + 1]) <= bandwidth_bound(a)


def test_only_differences_count():
    a = [Fraction(0), Fraction(1, 3), Fraction(1, 2)]
    assert bandwidth_bound(a) == bandwidth_bound([x + 7 for x in a])


@pytest.mark.parametrize(
    ("n", "k", "rounds"), [(6, 5, 7), (12, 11, 14), (24, 23, 27), (48, 47, 52), (96, 95, 101), (192, 191, 198)]
)
def test_rounds_of_the_paper_table(n, k, rounds):
    assert round_bound(n, k) == rounds


def test_rounds_are_null_where_they_are_not_one_port():
    assert schedule_round_bound(stragglar.schedule(8)) == 9
    assert schedule_round_bound(all_pairs.schedule(8)) is None
    assert schedule_round_bound(halving_doubling.schedule(8)) is None  # messages of several chunks


def test_microseconds_and_latency():
    found = bounds(Topology.switch(8, 100.0, 3.0), ArrivalProfile.late(8, 7, 1e6), 10**9, round_latency_us=1.0)
    assert found.bound_us == pytest.approx(10_000)
    assert found.bound_latency_us == pytest.approx(3 * 3 + 1)
    exclusive = Topology.switch(8, 100.0, 3.0, ports="exclusive")
    assert bounds(exclusive, ArrivalProfile.late(8, 7, 1e6), 1, round_latency_us=1.0).bound_latency_us == pytest.approx(
        3 * 4
    )
    assert bounds(Topology.mesh(8, 10.0, 3.0), ArrivalProfile.late(8, 7, 1e6), 10**9).bound_us == pytest.approx(
        1e9 / 70e3
    )


def test_latency_counts_what_a_sender_is_held_for():
    """One slow downlink of four: no bound on those who need not use it."""
    links = [Link(src=r, dst="s", bandwidth_gbs=450, latency_us=0.5) for r in range(4)]
    links += [Link(src="s", dst=r, bandwidth_gbs=450, latency_us=50.0 if r == 1 else 0.0) for r in range(4)]
    for ports in ("shared", "exclusive"):
        topology = Topology(name="slow downlink", ranks=4, switches=("s",), links=tuple(links), ports=ports)
        found = bounds(topology, ArrivalProfile.late(4, 3, 5000.0), 1)
        assert found.bound_latency_us == pytest.approx(1.0)


def test_different_ports_are_valid_but_said_to_be_weak():
    links = [
        Link(src=a, dst=b, bandwidth_gbs=1.0 if 0 in (a, b) else 2.0, latency_us=0)
        for a, b in itertools.permutations(range(3), 2)
    ]
    found = bounds(Topology(name="lopsided", ranks=3, links=tuple(links)), ArrivalProfile.synchronous(3), 3000)
    assert not found.tight
    assert found.bound_us == pytest.approx(4 / 3)


def test_sizes_must_fit():
    with pytest.raises(InputError, match="the topology has 3 ranks, the arrivals 4"):
        bounds(Topology.switch(3, 1.0), ArrivalProfile.synchronous(4), 1)


def test_the_ring_meets_its_bound_in_the_limit():
    assert schedule_round_bound(ring.schedule(8)) == 10
