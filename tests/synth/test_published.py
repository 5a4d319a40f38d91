"""The published algorithms: golden schedules, round counts beside the paper's, every late rank."""

from __future__ import annotations

import pytest

from latecomer.schedules.bounds import schedule_round_bound
from latecomer.schedules.check import check
from latecomer.schedules.errors import NotApplicable
from latecomer.synth.algorithms import direct, halving_doubling, ring, stragglar

PAPER_ROUNDS = {6: 7, 12: 15, 24: 27, 48: 57}
AUTHORS_CODE_ROUNDS = {6: 7, 10: 12, 12: 15, 14: 17, 18: 21, 20: 24, 22: 26, 24: 27, 26: 31, 28: 33, 30: 38, 48: 55}
OUR_ROUNDS = {6: 7, 10: 12, 12: 15, 14: 17, 18: 21, 20: 24, 22: 26, 24: 28, 26: 30, 28: 32, 30: 34, 48: 53}


@pytest.mark.parametrize("n", [2, 4, 6, 8, 16])
def test_golden_schedules(n, golden):
    golden(f"stragglar-{n}.json", stragglar.schedule(n).to_json())


@pytest.mark.parametrize(
    ("name", "make"),
    [("ring", ring.schedule), ("direct", direct.schedule), ("halving_doubling", halving_doubling.schedule)],
)
def test_golden_baselines(name, make, golden):
    golden(f"{name}-4.json", make(4).to_json())


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32, 64, 128])
def test_powers_of_two_take_n_minus_2_plus_log2_n_rounds(n):
    schedule = stragglar.schedule(n)
    check(schedule)
    assert schedule.rounds == n - 2 + n.bit_length() - 1 == schedule_round_bound(schedule)


@pytest.mark.parametrize("n", sorted(OUR_ROUNDS))
def test_other_even_n_by_matching(n):
    """Beside the paper's and its code's counts: within one round of the better, never more than four over the bound."""
    schedule = stragglar.schedule(n)
    check(schedule)
    assert schedule.rounds == OUR_ROUNDS[n]
    assert schedule.rounds <= AUTHORS_CODE_ROUNDS[n] + 1
    bound = schedule_round_bound(schedule)
    assert bound is not None
    assert bound <= schedule.rounds <= bound + 4
    assert PAPER_ROUNDS.get(n, 99) >= schedule.rounds - 1


@pytest.mark.parametrize("n", [4, 8, 6, 10])
def test_the_completion_pairs_ranks(n):
    """Every round of the completion is a matching: who sends to a rank is whom it sends to, or sends nothing."""
    moves = stragglar.schedule(n).after_arrival
    for _, rows in moves.by_round():
        to = dict(zip(moves.src[rows].tolist(), moves.dst[rows].tolist(), strict=True))
        clamped = moves.chunk[rows].max() == n - 2 and moves.round[rows.start] > 2 * n - 4
        for src, dst in to.items():
            assert to.get(dst, src) == src or clamped


@pytest.mark.parametrize("n", [3, 5, 7, 9])
def test_odd_n_names_what_serves_it(n):
    with pytest.raises(NotApplicable, match=rf"needs an even number of ranks, not {n}; circulant serves any number"):
        stragglar.schedule(n)


def test_other_chunk_counts_name_what_takes_them():
    with pytest.raises(NotApplicable, match="exactly n-1 = 7 chunks, not 8; tiling and circulant take any number"):
        stragglar.schedule(8, 8)


def test_halving_doubling_needs_a_power_of_two():
    with pytest.raises(NotApplicable, match="power of two of ranks, not 6; ring serves any number"):
        halving_doubling.schedule(6)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 9])
@pytest.mark.parametrize("chunks", [None, 1, 3, 16])
def test_baselines_at_any_size_and_number_of_chunks(n, chunks):
    for make in (ring.schedule, direct.schedule, *([halving_doubling.schedule] if n & (n - 1) == 0 else [])):
        check(make(n, chunks))
    assert ring.schedule(n, chunks).rounds == 2 * (n - 1)


@pytest.mark.parametrize("late", range(6))
def test_the_late_rank_is_any_rank(late):
    others = [rank for rank in range(6) if rank != late]
    schedule = stragglar.schedule(6).bound_to([*others, late])
    check(schedule)
    assert f"late rank {late}" in str(schedule)
