import numpy as np
import pytest

from latecomer.schedules.chunks import EVERY_EARLY_RANK
from latecomer.schedules.errors import InputError
from latecomer.synth.algorithms import circulant
from latecomer.synth.algorithms.circulant_graph import (
    base_block,
    broadcast,
    receive_schedule,
    schedules,
    skips,
)
from latecomer.synth.algorithms.completion import log2_ceil

from .completion_check import judge


def rows_of(transfers):
    columns = transfers.round, transfers.src, transfers.dst, transfers.chunk, transfers.reduce
    return set(zip(*(c.tolist() for c in columns), strict=True))


def test_skips_and_schedules_of_the_paper():
    assert skips(22) == (1, 2, 3, 6, 11, 22)
    assert skips(17) == (1, 2, 3, 5, 9, 17)
    assert skips(2) == (1, 2)
    assert receive_schedule(skips(17), 1) == [0, -4, -2, -3, -1]
    assert receive_schedule(skips(17), 2) == [-5, 1, -2, -3, -1]
    assert receive_schedule(skips(17), 16) == [-5, -2, -3, -1, 1]


@pytest.mark.parametrize("positions", [*range(2, 130), 256, 257, 512, 1000, 1024, 1025])
def test_the_four_conditions(positions):
    skip, q = skips(positions), log2_ceil(positions)
    receives, sends = schedules(positions)
    assert skip[0] == 1
    assert len(skip) == q + 1
    for k in range(q):
        # 1: what a rank sends is what the rank it sends to receives (the root takes nothing).
        to = (np.arange(positions) + skip[k]) % positions
        assert np.array_equal(sends[to != 0, k], receives[to[to != 0], k])
    for r in range(1, positions):
        base = base_block(skip, r)
        # 3: in any q consecutive rounds q different blocks: one new, the others of the stretch before.
        assert set(receives[r]) == ({*range(-q, 0)} - {base - q}) | {base}
        # 2: what is sent came in this stretch, or in the one before it, where its number was q higher.
        for k in range(q):
            fresh = sends[r, k] in receives[r, :k] or sends[r, k] + q in receives[r]
            assert fresh or r + skip[k] == positions
    # 4
    assert list(sends[0]) == list(range(q))


@pytest.mark.parametrize("positions", [1, 2, 3, 5, 8, 11, 22, 33])
@pytest.mark.parametrize("blocks", [1, 2, 7, 40])
def test_broadcast_brings_every_block_once(positions, blocks):
    hops = broadcast(positions, blocks)
    pairs = hops.dst * blocks + hops.block
    assert sorted(pairs) == list(range(blocks, positions * blocks))
    if positions > 1:
        assert hops.round[-1] + 1 == blocks - 1 + log2_ceil(positions)


@pytest.mark.parametrize("ranks", range(2, 18))
@pytest.mark.parametrize("every_owner", [False, True])
def test_rounds_are_optimal_for_every_number_of_chunks(ranks, every_owner):
    for chunks in range(1, 2 * ranks + 4):
        completion = circulant.completion(ranks, chunks, every_owner=every_owner)
        judge(completion, ranks, chunks)
        assert completion.rounds == completion.transfers.rounds == chunks + log2_ceil(ranks) - 1


@pytest.mark.parametrize("ranks", [*range(18, 66), 96, 127, 128, 129, 192, 255, 256, 257])
def test_rounds_are_optimal_for_more_ranks(ranks):
    for chunks in {1, 2, 3, 16, 32, ranks - 1, 2 * ranks - 2}:
        completion = circulant.completion(ranks, chunks)
        judge(completion, ranks, chunks)
        assert completion.rounds == chunks + log2_ceil(ranks) - 1


@pytest.mark.parametrize("ranks", [2, 3, 6, 8, 13])
@pytest.mark.parametrize("chunks", [1, 2, 5, 12, 31])
@pytest.mark.parametrize("every_owner", [False, True])
def test_patterns_are_rows_and_nearly_all_of_them(ranks, chunks, every_owner):
    completion = circulant.completion(ranks, chunks, every_owner=every_owner)
    rows = rows_of(completion.transfers)
    said = [rows_of(pattern.expand()) for pattern in completion.patterns]
    assert sum(map(len, said)) == len(set().union(*said))
    assert set().union(*said) <= rows
    early_rows = {row for row in rows if ranks - 1 not in row[1:3] and row[0] < chunks}
    assert early_rows <= set().union(set(), *said)


def test_owners_are_the_ranks_one_skip_from_the_straggler():
    owners = circulant.completion(12, 20).owners
    assert set(owners) == {skip - 1 for skip in skips(12)[:-1]}
    assert circulant.completion(12, 3, every_owner=True).owners == (EVERY_EARLY_RANK,) * 3


def test_errors():
    with pytest.raises(InputError, match="2 ranks"):
        circulant.completion(1, 1)
    with pytest.raises(InputError, match="1 chunk"):
        circulant.completion(3, 0)
