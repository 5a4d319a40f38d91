"""Rotational completion: round-optimal with N = n-1 owners for any n up to 64, from solved templates.

**Rounds K + ⌈log2 n⌉ - 1** for every K ≥ 1 (`completion.least_rounds` says why no fewer). N owners, so
the pre-work is a full ReduceScatter of the early ranks, (N-1)/N·S·β instead of the circulant graph's S·β: prefer it
where the delay only just hides the pre-work. It generalises block tiling (`tiling`, which serves powers of two) and is
ours, like the tail; the data flow is that of StragglAR (arXiv 2505.23523).

* *Template*. Early rank x does in round t what rank x-1 did in round t-1 for the chunk before. Rank x is in
  slot (t - x) mod N, and the template says which age (t - c + 1 for chunk c) is received and sent in each slot.
  At each age there are as many senders as receivers; in slot 0 rank and straggler swap the round's chunk.
* *Tail*. From round K-(L-1) on the template would run past the last chunk, so the last 2(L-1) rounds are
  solved separately. Counted from the end, and with ranks counted from the owner of chunk K, they depend neither on
  K nor on K mod N: the template is the same for all chunks. A small K is the same schedule with the chunks below
  0, and what concerns them, left out. So one tail for each n serves every K.

Both are data, `catalog/rotation.json`, made by `python -m latecomer.synth.catalog.make`; tests verify every entry.
For n = 3 the two early ranks are the two owners of the circulant completion, which is used. O(K·n).
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from typing import Any, Final

import numpy as np

from latecomer.schedules.errors import NotApplicable
from latecomer.schedules.transfers import Moves, Transfers
from latecomer.synth.algorithms import circulant, tiling
from latecomer.synth.algorithms.completion import Completion, least_rounds, log2_ceil, require_size

CATALOG: Final = "rotation.json"
LARGEST: Final = 64
DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
"""Ages and chunk numbers in the catalog: one digit each."""


def completion(ranks: int, chunks: int) -> Completion:
    """K + ⌈log2 n⌉ - 1 rounds with N owners; `NotApplicable` where the catalog has no template."""
    require_size(ranks, chunks)
    if ranks & (ranks - 1) == 0:
        return tiling.completion(ranks, chunks)
    if ranks == 3:
        return circulant.completion(ranks, chunks)
    entry = _catalog().get(str(ranks))
    if entry is None:
        raise NotApplicable(f"rotation has no template for {ranks} ranks; circulant serves any number of ranks")
    early, levels = ranks - 1, log2_ceil(ranks)
    receives, sends = (np.array([DIGITS.index(digit) for digit in entry[key]]) for key in ("receives", "sends"))
    source = tiling.pair_by_age(receives, sends)
    body = tiling.unroll(receives, source, early, chunks, max(0, chunks - (levels - 1)))
    transfers = Transfers.concat(body, _tail(entry, early, chunks, levels))
    owners = tuple(c % early for c in range(chunks))
    return Completion(transfers, owners, least_rounds(ranks, chunks))


@lru_cache(maxsize=1)
def _catalog() -> dict[str, Any]:
    text = resources.files("latecomer.synth.catalog").joinpath(CATALOG).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def _tail(entry: dict[str, Any], early: int, chunks: int, levels: int) -> Transfers:
    """Rounds K-(L-1) … K+L-2. Senders and receivers of a chunk are paired in order of ranks."""
    moves = Moves()
    rows = zip(entry["tail_sends"], entry["tail_receives"], strict=True)
    for t, (sent, received) in zip(range(1 - levels, levels - 1), rows, strict=True):
        if t < 0 <= t + chunks:
            moves.swap(t + chunks, early, (t + chunks) % early, t + chunks)
        src, dst = (np.array([-DIGITS.index(digit) for digit in row]) for row in (sent, received))
        for e in range(max(int(src.min()), -chunks), 0):
            # Role N, the straggler, keeps its number; early ranks are counted from the owner of chunk K.
            senders = np.flatnonzero(src == e)
            moves.copy(
                t + chunks,
                np.where(senders == early, early, (senders + chunks) % early),
                (np.flatnonzero(dst == e) + chunks) % early,
                e + chunks,
            )
    return moves.build()
