import numpy as np
import pytest

from latecomer.schedules.check import check
from latecomer.synth.algorithms import circulant, circulant_collectives, ring_owners
from latecomer.synth.algorithms.completion import log2_ceil


def judge_reduction(transfers, ranks, owners, *, one_port):
    """Plays the rounds on bit sets: reductions join disjoint sets, owners end with all contributions."""
    held = np.array([[1 << r] * len(owners) for r in range(ranks)], dtype=object)
    for t, rows in transfers.by_round():
        src, dst, chunk = transfers.src[rows], transfers.dst[rows], transfers.chunk[rows]
        assert transfers.reduce[rows].all()
        if one_port:
            assert len(set(src)) == len(set(dst)) == len(src), f"round {t}"
        data = held[src, chunk]
        assert not np.any(data & held[dst, chunk])
        held[dst, chunk] |= data
    assert all(held[owner, c] == 2**ranks - 1 for c, owner in enumerate(owners))


@pytest.mark.parametrize("ranks", [*range(2, 34), 64, 100])
def test_allreduce_rounds_and_volume(ranks):
    schedule = circulant_collectives.schedule(ranks)
    check(schedule)
    assert schedule.rounds == 2 * log2_ceil(ranks)
    for end in (schedule.transfers.src, schedule.transfers.dst):
        assert np.all(np.bincount(end, minlength=ranks) == 2 * (ranks - 1))
    # One message a round and port: one partner each way.
    tr = schedule.transfers
    partners = np.unique(np.stack([tr.round, tr.src, tr.dst]), axis=1)
    assert len(np.unique(partners[:2], axis=1).T) == partners.shape[1]


@pytest.mark.parametrize("chunks", [1, 2, 7, 15])
def test_allreduce_with_any_number_of_chunks(chunks):
    check(circulant_collectives.schedule(7, chunks))


@pytest.mark.parametrize("ranks", range(1, 20))
def test_reduce_scatter_to_given_owners(ranks):
    owners = [(5 * c + 2) % ranks for c in range(2 * ranks + 1)]
    transfers = circulant_collectives.reduce_scatter(ranks, owners)
    judge_reduction(transfers, ranks, owners, one_port=False)
    assert transfers.rounds == log2_ceil(ranks)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 6, 8, 9, 12, 17, 33, 64])
def test_pipelined_reductions_to_the_circulant_owners(ranks):
    early, q = ranks - 1, log2_ceil(ranks)
    for chunks in (1, 2, q, 16, early, 2 * early, 100):
        owners = circulant.completion(ranks, chunks).owners
        ring = ring_owners.reduce_to_owners(early, owners)
        reversed_broadcasts = circulant_collectives.reduce_to_owners(early, owners)
        for transfers in (ring, reversed_broadcasts):
            judge_reduction(transfers, early, owners, one_port=True)
        assert reversed_broadcasts.rounds <= chunks + q * (q - 1)
        assert ring.rounds <= chunks + early + -(-chunks // early)


@pytest.mark.parametrize("early", [1, 2, 3, 6, 7, 11])
def test_ring_with_all_owners_is_the_ring_repeated(early):
    for turns in (1, 2, 3):
        owners = [c % early for c in range(turns * early)]
        transfers = ring_owners.reduce_to_owners(early, owners)
        judge_reduction(transfers, early, owners, one_port=True)
        assert transfers.rounds == turns * (early - 1)
