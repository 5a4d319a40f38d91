"""A judge for completions that shares no code with the package: sets as two bits, rounds as barriers."""

import numpy as np

NOTHING, P, X = 0, 1, 2
FULL = P | X


def judge(completion, ranks, chunks, *, relays=False):
    """Plays the rounds: port rule, only what is held is sent, reduces join disjoint sets, all end full."""
    tr, straggler = completion.transfers, ranks - 1
    held = np.full((ranks, chunks), NOTHING)
    held[straggler] = X
    for c, owner in enumerate(completion.owners):
        assert -1 <= owner < straggler
        held[slice(0, straggler) if owner == -1 else owner, c] = P
    assert len(completion.owners) == chunks
    assert not np.any(tr.phase | tr.src_slot | tr.dst_slot)
    assert np.all(tr.src != tr.dst)
    for t, rows in tr.by_round():
        src, dst, chunk, reduce = tr.src[rows], tr.dst[rows], tr.chunk[rows], tr.reduce[rows]
        assert len(np.unique(src)) == len(src), f"round {t}: a rank sends twice"
        assert len(np.unique(dst)) == len(dst), f"round {t}: a rank receives twice"
        data, old = held[src, chunk], held[dst, chunk]
        assert np.all(data != NOTHING), f"round {t}: sends what is not held"
        joins = reduce == 1
        assert np.all((old[joins] != NOTHING) & (data[joins] & old[joins] == 0)), f"round {t}: bad reduce"
        assert relays or np.all(data[~joins] == FULL), f"round {t}: copies a partial sum"
        held[dst, chunk] = np.where(joins, data | old, data)
    assert np.all(held == FULL), f"missing: {np.argwhere(held != FULL)[:5].tolist()}"
    assert tr.rounds <= completion.rounds
