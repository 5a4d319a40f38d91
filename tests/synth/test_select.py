"""The choice: the best of all candidates, certified; chunk counts; plan sets; sensitivity; relabelling."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.check import check
from latecomer.schedules.errors import InputError, NotApplicable
from latecomer.schedules.relabel import for_late_rank, relabel
from latecomer.schedules.topology import Link, Topology
from latecomer.synth.algorithms import ring, stragglar
from latecomer.synth.chunking import Model, best_rounds, best_segments
from latecomer.synth.plan_set import plan_set
from latecomer.synth.question import Question
from latecomer.synth.registry import ALGORITHMS, named
from latecomer.synth.select import compare, select
from latecomer.synth.sensitivity import sensitivity
from latecomer.synth.sources.presets import preset
from latecomer.synth.synthesize import synthesize

GIB = 2**30
PAPER_RATE = 450 * 2**30 / 1e9


def question(
    ranks: int = 8, delay_us: float = 5000.0, *, size: int = GIB, alpha: float = 3.0, round_us: float = 0.0
) -> Question:
    return Question(
        Topology.switch(ranks, PAPER_RATE, alpha), ArrivalProfile.late(ranks, 3 % ranks, delay_us), size, round_us
    )


@pytest.mark.smoke
def test_the_figures_of_the_model_without_message_latency():
    """n = 8, 1 GiB, round latency 3 µs, message latency 0: 1.12 one-port, 1.08 all-pairs; ring 1.77, published 1.30."""
    asked = question(alpha=0.0, round_us=3.0)
    ratio = {c.algorithm.name: c.time_us / asked.bounds().bound_us for c in compare(asked)}
    assert ratio["tiling"] <= 1.12
    assert ratio["circulant"] <= 1.12
    assert ratio["rotation"] <= 1.12
    assert ratio["all_pairs"] <= 1.08
    assert ratio["ring"] == pytest.approx(1.77, abs=0.005)
    assert ratio["stragglar"] == pytest.approx(1.30, abs=0.005)


def test_the_certificate_carries_the_proof():
    plan = synthesize(Topology.switch(8, PAPER_RATE), ArrivalProfile.late(8, 3, 5000), GIB, algorithm="stragglar")
    certificate = plan.certificate
    assert certificate is not None
    assert (certificate.proof, certificate.rounds, certificate.bound_rounds) == ("round-optimal", 9, 9)
    assert certificate.time_us == pytest.approx(2884, abs=1)
    assert certificate.ring_time_us == pytest.approx(3931, abs=1)
    assert certificate.gap == pytest.approx(0.298, abs=0.001)
    assert certificate.prework_us == pytest.approx(1923, abs=1)
    assert plan.binding[7] == 3
    assert plan.provenance.topology_digest
    assert plan.provenance.arrivals_digest


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("late", [0, -1])
def test_every_algorithm_for_every_late_rank(ranks, late):
    arrivals = ArrivalProfile.late(ranks, late % ranks, 800.0)
    for candidate in compare(Question(Topology.switch(ranks, PAPER_RATE), arrivals, 2**26)):
        if candidate.schedule is None:
            assert candidate.reason
            continue
        check(candidate.schedule)
        if candidate.algorithm.late:
            assert candidate.schedule.binding[-1] == late % ranks


@settings(max_examples=25, deadline=None)
@given(ranks=st.integers(2, 8), delay=st.floats(0, 5000), exponent=st.integers(8, 30))
def test_auto_is_never_slower_than_the_best_synchronous_algorithm(ranks, delay, exponent):
    asked = question(ranks, delay, size=2**exponent)
    best = select(asked)
    for candidate in compare(asked, algorithms=[a for a in ALGORITHMS if not a.late]):
        assert best.time_us <= candidate.time_us * 1.01


@pytest.mark.parametrize("delay", [0.0, 200.0, 600.0, 1200.0])
@pytest.mark.parametrize("name", ["tiling", "circulant"])
def test_one_port_families_split_the_message_when_the_delay_is_short(name, delay):
    """No latency: within 3 % of S·β above T(d), the bound of its number of owners."""
    topology = Topology.switch(8, PAPER_RATE, 0.0, ports="exclusive")
    asked = Question(topology, ArrivalProfile.late(8, 7, delay), GIB)
    if delay == 0:
        with pytest.raises(NotApplicable, match="too short to reduce any of the message early"):
            synthesize(topology, asked.arrivals, GIB, algorithm=name)
        return
    plan = synthesize(topology, asked.arrivals, GIB, algorithm=name, chunks=128)
    d = delay / asked.model().message_us
    owners_limit = (2 * 7 - 7 * d) / 8 if name == "tiling" else (2 * 7 - 6 * d) / 8
    assert plan.certificate is not None
    assert plan.certificate.time_us / asked.model().message_us <= max(1.0, owners_limit) * 1.03
    assert set(plan.kinds().tolist()) == {"prework", "completion", "synchronous"}


def test_powers_of_two_are_preferred_when_they_cost_little():
    model = Model(0.0, 3.0, 2222.2, 5000.0)
    assert best_rounds(8, model) == 32  # the ideal is 38
    assert best_rounds(8, model.scaled(1e-6)) == 1
    assert best_rounds(2, model) == 1
    assert best_segments(8, Model(3.0, 0.0, 2222.2, 5000.0)) == 32
    assert best_rounds(8, Model(0.0, 0.0, 1.0, 0.0)) == 256


def test_plan_sets_leave_no_gap():
    plans = plan_set(question(size=1), 1024, 2**30)
    assert plans[0].min_bytes == 1024
    assert plans[-1].max_bytes == 2**30
    for a, b in pairwise(plans):
        assert a.max_bytes + 1 == b.min_bytes
        assert a.schedule.transfers != b.schedule.transfers
    assert all(plan.schedule.certificate.size_bytes == plan.min_bytes for plan in plans)
    with pytest.raises(InputError, match="a range of sizes goes up"):
        plan_set(question(), 10, 5)


def test_sensitivity_asks_again():
    asked = question(alpha=0.0, round_us=3.0)
    plan = synthesize(asked.topology, asked.arrivals, GIB, round_latency_us=3.0)
    cases = {(c.alpha_factor, c.beta_factor): c for c in sensitivity(plan, asked)}
    assert len(cases) == 9
    assert cases[1.0, 1.0].regret == 0.0
    assert cases[2.0, 0.5].regret >= 0.0
    assert cases[1.0, 2.0].time_us > cases[1.0, 1.0].time_us
    assert all(case.gain is not None and case.gain > 1.4 for case in cases.values())


@given(st.permutations(range(6)))
def test_relabelling_keeps_the_proof(permutation):
    plan = relabel(stragglar.schedule(6), permutation)
    check(plan)
    assert plan.binding == tuple(permutation)


def test_a_plan_for_one_late_rank_becomes_a_plan_for_any():
    plan = for_late_rank(stragglar.schedule(4), 1)
    assert plan.binding == (0, 3, 2, 1)
    check(plan)
    with pytest.raises(InputError, match="late rank 9 is out of range"):
        for_late_rank(plan, 9)
    with pytest.raises(InputError, match="ring has no late rank to move"):
        for_late_rank(ring.schedule(4), 1)
    with pytest.raises(InputError, match="names each of 0 … 3 once"):
        relabel(plan, [0, 0, 1, 2])


def test_names_are_helpful():
    with pytest.raises(InputError, match="no algorithm is called 'circulent'; did you mean circulant"):
        named("circulent")
    with pytest.raises(InputError, match="there are auto, ring, "):
        named("zzz")


def test_what_does_not_apply_says_why():
    exclusive = Topology.switch(8, 1.0, ports="exclusive")
    with pytest.raises(
        NotApplicable, match="all_pairs sends to several peers at once, but the ports of switch:8 are exclusive"
    ):
        synthesize(exclusive, ArrivalProfile.late(8, 1, 5.0), GIB, algorithm="all_pairs")
    with pytest.raises(
        NotApplicable, match="circulant needs a switch or a link between every two GPUs, but on dgx-v100"
    ):
        synthesize(preset("dgx-v100"), ArrivalProfile.late(8, 1, 5.0), GIB, algorithm="circulant")
    path = [Link(src=a, dst=b, bandwidth_gbs=1.0, latency_us=0.0) for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))]
    line = Topology(name="a line", ranks=3, links=tuple(path))
    with pytest.raises(
        NotApplicable, match=r"no algorithm serves this case:\n  ring: a ring needs links that lead once"
    ):
        synthesize(line, ArrivalProfile.late(3, 1, 5.0), GIB)
    with pytest.raises(InputError, match="100000 chunks are more than gain anything; take 4096 or fewer"):
        synthesize(exclusive, ArrivalProfile.late(8, 1, 5.0), GIB, chunks=100000)
    with pytest.raises(InputError, match="at least 1 chunk, not 0"):
        synthesize(exclusive, ArrivalProfile.late(8, 1, 5.0), GIB, algorithm="circulant", chunks=0)
    with pytest.raises(NotApplicable, match="take --chunks 25 or fewer"):
        synthesize(Topology.switch(46, 1.0), ArrivalProfile.late(46, 1, 5.0), GIB, algorithm="adaptive", chunks=200)


def test_the_ring_follows_the_widest_links():
    """A hybrid cube mesh has no link 3-4, but cycles through all GPUs, one of them of double links only."""
    cube = preset("dgx-v100")
    plan = synthesize(cube, ArrivalProfile.late(8, 1, 5.0), GIB)
    assert plan.provenance.algorithm == "ring"
    order = plan.binding
    assert order != tuple(range(8))
    widths = {cube.pair_gbs(a, b) for a, b in pairwise([*order, order[0]])}
    assert min(widths) == max(link.bandwidth_gbs for link in cube.links)
    assert plan.certificate is not None
    assert plan.certificate.ring_time_us == plan.certificate.time_us


def test_several_late_ranks_the_last_is_the_straggler():
    plan = synthesize(Topology.switch(4, 450.0), ArrivalProfile.of([0, 9000, 4000, 0]), GIB)
    assert plan.binding[3] == 1
    assert plan.certificate is not None
    assert plan.certificate.gap >= 0


def test_exhaustive_search_by_name():
    plan = synthesize(Topology.switch(4, 1.0), ArrivalProfile.late(4, 1, 5000.0), 1000, algorithm="exact", chunks=3)
    assert plan.certificate is not None
    assert (plan.certificate.proof, plan.certificate.rounds) == ("round-optimal", 4)
    assert plan.certificate.note == "exhaustive search with these owners: found 4, proven ≥ 4"
    with pytest.raises(
        NotApplicable, match="too many for an exhaustive search; take a construction, such as circulant"
    ):
        synthesize(Topology.switch(64, 1.0), ArrivalProfile.late(64, 1, 5000.0), 1000, algorithm="exact")


def test_more_chunks_than_bytes_is_legal():
    check(synthesize(Topology.switch(4, 1.0), ArrivalProfile.late(4, 0, 100.0), 3, algorithm="circulant", chunks=50))
