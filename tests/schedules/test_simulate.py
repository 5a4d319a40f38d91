"""The simulator: known times, the two engines against each other, never below the bounds."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.bounds import bounds
from latecomer.schedules.engines import events, rounds
from latecomer.schedules.engines.case import Case
from latecomer.schedules.errors import InputError, NotApplicable, TopologyError
from latecomer.schedules.simulate import REASONS, simulate
from latecomer.schedules.topology import Topology
from latecomer.synth.algorithms import all_pairs, circulant_collectives, direct, ring, stragglar
from latecomer.synth.sources.presets import preset

GIB = 2**30
PAPER_RATE = 450 * 2**30 / 1e9  # 450 GiB/s, as the published simulation has it


def late(ranks: int, delay_us: float = 1e6) -> ArrivalProfile:
    return ArrivalProfile.late(ranks, ranks - 1, delay_us)


@pytest.mark.smoke
def test_the_published_figures():
    """n = 8, 1 GiB, 450 GiB/s, 3 µs: ring 3.93 ms, StragglAR 2.88 ms, bound 2.22 ms; 1.36 times as fast."""
    topology = Topology.switch(8, PAPER_RATE)
    ring_us = simulate(ring.schedule(8), topology, late(8), GIB).time_us
    published = simulate(stragglar.schedule(8), topology, late(8), GIB)
    assert ring_us == pytest.approx(14 * (3 + GIB / 8 / PAPER_RATE / 1e3))
    assert published.time_us == pytest.approx(9 * (3 + GIB / 7 / PAPER_RATE / 1e3))
    assert round(ring_us), round(published.time_us) == (3931, 2884)
    assert ring_us / published.time_us == pytest.approx(1.36, abs=0.005)
    assert bounds(topology, late(8), GIB).bound_us == pytest.approx(2222.2, abs=0.1)
    assert published.prework_us == pytest.approx(6 * (3 + GIB / 7 / PAPER_RATE / 1e3))


@pytest.mark.parametrize("ports", ["shared", "exclusive"])
def test_a_round_latency_is_paid_once_a_round(ports):
    topology = Topology.switch(4, 1.0, 0.0, ports=ports)
    slow = simulate(ring.schedule(4), topology, ArrivalProfile.synchronous(4), 4000, round_latency_us=5.0)
    assert slow.time_us == pytest.approx(6 * (5 + 1))


def test_all_pairs_pays_a_message_latency_per_peer_and_a_round_latency_once():
    topology = Topology.switch(4, 1.0, 2.0)
    run = simulate(
        all_pairs.synchronous_schedule(4), topology, ArrivalProfile.synchronous(4), 4000, round_latency_us=5.0
    )
    assert run.time_us == pytest.approx(2 * (5 + 3 * (2 + 1)))


def test_a_mesh_uses_its_links_side_by_side():
    run = simulate(all_pairs.synchronous_schedule(4), Topology.mesh(4, 1.0, 0.0), ArrivalProfile.synchronous(4), 4000)
    assert run.time_us == pytest.approx(2 * 1)


@pytest.mark.parametrize("make", [ring.schedule, stragglar.schedule, direct.schedule, circulant_collectives.schedule])
@pytest.mark.parametrize("ranks", [2, 4, 6, 8])
def test_the_engines_agree_on_one_port_schedules(make, ranks):
    """Where nothing is kept waiting: a one-port schedule keeps its order by itself."""
    schedule, topology = make(ranks), Topology.switch(ranks, 3.0, 1.0)
    arrivals = np.array(late(ranks, 1e6 if schedule.late_roles else 0.0).single)
    case = Case.of(schedule, topology, arrivals - arrivals.max(), 10**6, 0.5, None)
    by_round, by_event = rounds.run(case), events.run(case)
    assert by_event.landed_us.max() == pytest.approx(by_round.landed_us.max(), abs=1e-6)
    assert np.all(by_event.end_us <= by_round.end_us + 1e-6)  # what is ready need not wait for its turn


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("delay", [1e3, 1e9, 1e12])
def test_a_late_clock_costs_no_digits(ranks, delay):
    """Times after the last arrival do not depend on when that is."""
    topology, size = Topology.switch(ranks, 450.0, 0.0), 64
    arrivals = late(ranks, delay)
    for schedule in (ring.schedule(ranks), direct.schedule(ranks), all_pairs.schedule(ranks, 2)):
        run, limit = simulate(schedule, topology, arrivals, size), bounds(topology, arrivals, size)
        assert run.time_us >= limit.bound_us * (1 - 1e-9)
        assert run.time_us <= limit.bound_us * 4


@settings(max_examples=40, deadline=None)
@given(
    ranks=st.integers(2, 7),
    segments=st.integers(1, 9),
    delay=st.fractions(0, 2),
    alpha=st.sampled_from([0.0, 3.0]),
    seed=st.integers(0, 10**6),
    adaptive=st.booleans(),
)
def test_never_below_the_bounds(ranks, segments, delay, alpha, seed, adaptive):
    size, topology = 10**6, Topology.switch(ranks, 1.0, alpha)
    times = np.random.default_rng(seed).uniform(0, 2000, ranks)
    arrivals = ArrivalProfile.of(np.sort(times))
    schedule = all_pairs.adaptive(ranks, segments) if adaptive else all_pairs.schedule(ranks, segments, delay=delay)
    run = simulate(schedule, topology, arrivals, size)
    limit = bounds(topology, arrivals, size)
    assert run.time_us >= max(limit.bound_us, limit.bound_latency_us) * (1 - 1e-9)


def test_a_wrong_guess_is_slower_but_counts():
    topology = Topology.switch(8, PAPER_RATE)
    right = simulate(stragglar.schedule(8), topology, late(8, 5000), GIB)
    wrong = simulate(stragglar.schedule(8), topology, ArrivalProfile.late(8, 2, 5000), GIB)
    assert wrong.time_us > right.time_us


def test_critical_path_is_a_chain_of_causes():
    run = simulate(stragglar.schedule(8), Topology.switch(8, PAPER_RATE), late(8), GIB)
    path = run.critical_path()
    assert run.end_us[path[-1]] == run.end_us.max()
    assert run.after[path[0]] == -1
    assert all(run.after[b] == a for a, b in pairwise(path))
    assert REASONS[run.reason[path[0]]] == "arrival"
    assert len(path) == 9


def test_waits_add_up():
    run = simulate(ring.schedule(4), Topology.switch(4, 1.0, 0.0), late(4, 100.0), 4000)
    assert run.wait_us == pytest.approx([100, 100, 100, 0], abs=4)
    assert run.finish_us.max() == pytest.approx(106)


def test_roles_bound_at_the_arrival():
    schedule = stragglar.schedule(4).model_copy(update={"bind_at": "arrival"})
    topology = Topology.switch(4, 1.0)
    run = simulate(schedule, topology, ArrivalProfile.late(4, 1, 1e6), 3000)
    assert run.schedule.binding == (0, 2, 3, 1)
    assert run.time_us == simulate(stragglar.schedule(4), topology, late(4), 3000).time_us


def test_the_adaptive_form_takes_the_branch_of_the_arrival():
    schedule, topology, size = all_pairs.adaptive(4, 8), Topology.switch(4, 1.0, 0.0), 12_000_000
    taken = [simulate(schedule, topology, late(4, d * 1000.0), size).schedule for d in (0, 3, 100)]
    reduced = [len(np.unique(s.prework.round)) for s in taken]
    assert reduced == [0, 3, 8]


@pytest.mark.parametrize("size", [0, -1, 1.5, float("nan"), True, 2**70])
def test_sizes_out_of_range(size):
    with pytest.raises(InputError, match="a whole number of bytes"):
        simulate(ring.schedule(4), Topology.switch(4, 1.0), late(4), size)


def test_what_does_not_fit_is_said():
    with pytest.raises(InputError, match="the schedule is for 4 ranks, the topology has 5 and the arrivals 5"):
        simulate(ring.schedule(4), Topology.switch(5, 1.0), late(5), 100)
    with pytest.raises(NotApplicable, match=r"sends to several peers at once, but the ports of .* are exclusive"):
        simulate(all_pairs.schedule(4), Topology.switch(4, 1.0, ports="exclusive"), late(4), 100)
    with pytest.raises(TopologyError, match="have no link"):
        simulate(all_pairs.synchronous_schedule(8), preset("dgx-v100"), ArrivalProfile.synchronous(8), 800)


def test_planned_for_a_delay_and_met():
    """At the planned delay the time is the bound but for one segment."""
    size, beta = 10**9, 10**6
    for delay in (Fraction(1, 4), Fraction(1, 2), Fraction(1)):
        run = simulate(
            all_pairs.schedule(8, 32, delay=delay), Topology.switch(8, 1.0, 0.0), late(8, float(delay * beta)), size
        )
        assert run.time_us / bounds(Topology.switch(8, 1.0), late(8, float(delay * beta)), size).bound_us <= 1.04
