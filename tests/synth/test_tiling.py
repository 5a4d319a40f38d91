import numpy as np
import pytest

from latecomer.schedules.errors import InputError, NotApplicable
from latecomer.synth.algorithms import tiling

from .completion_check import judge


@pytest.mark.parametrize("levels", range(1, 9))
def test_rounds_are_optimal_for_every_number_of_chunks(levels):
    n = 2**levels
    few = range(1, 3 * n) if n <= 16 else (1, 2, 3, levels, 16, 32, n - 2, n - 1, n, 2 * n - 2, 3 * n - 3)
    for chunks in few:
        completion = tiling.completion(n, chunks)
        assert completion.rounds == completion.transfers.rounds == chunks + levels - 1
        judge(completion, n, chunks)


@pytest.mark.parametrize("levels", range(1, 10))
def test_template_receives_each_slot_once_and_balances_every_age(levels):
    receives, sends = tiling.template(levels)
    ages = np.arange(2, levels + 2)
    assert len(receives) == 2**levels - 1
    assert [np.sum(receives == a) for a in ages] == [np.sum(sends == a) for a in ages]
    assert sends[0] == 0
    assert np.all(sends[1:] >= 2)
    assert np.sum(receives - 1) == (levels - 1) * len(receives)


def test_nobody_receives_a_chunk_twice():
    tr = tiling.completion(16, 40).transfers
    pairs = tr.dst.astype(int) * 40 + tr.chunk
    assert len(np.unique(pairs)) == len(pairs)


def test_errors_name_what_serves():
    with pytest.raises(NotApplicable, match="circulant"):
        tiling.completion(6, 5)
    with pytest.raises(InputError, match="2 ranks"):
        tiling.completion(1, 5)
    with pytest.raises(InputError, match="at least 1 chunk"):
        tiling.completion(4, 0)
