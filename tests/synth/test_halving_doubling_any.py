import numpy as np
import pytest

from latecomer.schedules.check import check
from latecomer.schedules.errors import InputError
from latecomer.synth.algorithms import halving_doubling, halving_doubling_any
from latecomer.synth.algorithms.completion import log2_ceil


@pytest.mark.parametrize("ranks", [*range(2, 36), 48, 63, 65, 96, 127])
def test_rounds_and_volume(ranks):
    schedule = halving_doubling_any.schedule(ranks)
    check(schedule)
    assert schedule.rounds == 2 * log2_ceil(ranks)
    tr, parts = schedule.transfers, len(schedule.chunks)
    # The longest message of each round, added up: the paper's volume, an upper bound for most n.
    volume = 0
    for _, rows in tr.by_round():
        messages = tr.src[rows].astype(int) * ranks + tr.dst[rows]
        volume += np.bincount(messages).max()
    most = 3 * parts - 2 if ranks != parts else 2 * (parts - 1)
    assert volume <= most


@pytest.mark.parametrize("ranks", [2, 8, 32])
def test_powers_of_two_cost_what_halving_doubling_costs(ranks):
    a, b = halving_doubling_any.schedule(ranks), halving_doubling.schedule(ranks)
    assert (a.rounds, len(a.transfers), len(a.chunks)) == (b.rounds, len(b.transfers), len(b.chunks))


@pytest.mark.parametrize("chunks", [1, 3, 4, 11])
def test_any_number_of_chunks(chunks):
    check(halving_doubling_any.schedule(7, chunks))


def test_errors():
    with pytest.raises(InputError, match="2 ranks"):
        halving_doubling_any.schedule(1)
