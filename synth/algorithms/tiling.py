"""Block tiling: the round-optimal completion for powers of two, in closed form.

n = 2^L ranks, N = n-1 of them early, any K ≥ 1 chunks. **Rounds K + L - 1**, which no one-port schedule beats
(`completion.least_rounds`); every rank sends and receives each chunk once but for the owners' hand-over, so
the time is (K + L - 1)(α + S·β/K), least near K = sqrt((L-1)·S·β/α). N owners: the pre-work is a full
ReduceScatter of the early ranks. Prefer it to the circulant graph when the delay only just hides the
pre-work. Built in O(n) a round.

The data flow (the straggler swaps one chunk a round with its owner, the rest spread full sums) is that of
StragglAR (Devraj et al., arXiv 2505.23523), whose own construction is for K = n-1; the block structure and K
are ours.

How it works. Chunk c is first sent, by the straggler to its owner c mod N, in round c; its *age* in round t
is t - c + 1. Early rank x does in round t what rank x-1 did in round t-1 for the chunk before, so everything
is said by a cyclic *template* of N slots; rank x is in slot (t - x) mod N. The template is a row of blocks.
A block of type g (1 ≤ g ≤ L) has L+1-g slots: in the first the rank receives the chunk of age g, in the
others chunks of age L+1; in the L+1-g rounds that follow its first slot the rank sends the chunk the block
began with. There is one block of type 1 and there are 2^(g-2) of each type g ≥ 2.

* A block begun in round t receives chunk t-g+1, then chunks t-L+1 … t-g: together an interval, and the next
  block's interval starts where it ends. So every rank receives every chunk once.
* At age a ≤ L, the 1 + 1 + 2 + … + 2^(a-3) = 2^(a-2) blocks of smaller type send to 2^(a-2) receivers. At
  age L+1 there is one sender more than receivers: the rank in slot 0, whose port is thus free to hand P_c to
  the straggler.
* Chunks numbered K and more mean chunk K-1 again. After round K+L-2 every chunk below K-1 has age L+1 or
  more, so it is in, and so is one of the chunks of ages 1 … L, which all mean chunk K-1. That is the whole
  wind-down.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latecomer.schedules.errors import NotApplicable
from latecomer.schedules.transfers import Moves, Transfers
from latecomer.synth.algorithms.completion import Completion, least_rounds, log2_ceil, require_size

Ages = NDArray[np.int64]


def completion(ranks: int, chunks: int) -> Completion:
    """K + log2 n - 1 rounds for n a power of two (see the module's text); `NotApplicable` for other n."""
    require_size(ranks, chunks)
    if ranks & (ranks - 1):
        raise NotApplicable(
            f"tiling needs a power of two of ranks, not {ranks}; "
            "circulant serves any number of ranks, rotation up to 64"
        )
    early = ranks - 1
    rounds = least_rounds(ranks, chunks)
    receives, sends = template(log2_ceil(ranks))
    transfers = unroll(receives, pair_by_age(receives, sends), early, chunks, rounds)
    owners = tuple(c % early for c in range(chunks))
    return Completion(transfers, owners, rounds)


def template(levels: int) -> tuple[Ages, Ages]:
    """The age each of the 2^levels - 1 slots receives, and the age it sends (0: nothing, only in slot 0)."""
    lengths = levels + 1 - np.array([1, *(g for g in range(2, levels + 1) for _ in range(2 ** (g - 2)))])
    starts = np.cumsum(lengths) - lengths
    receives = np.full(int(lengths.sum()), levels + 1)
    receives[starts] = levels + 1 - lengths
    # Slot j of a block of type g comes j rounds after the chunk of age g: it sends that chunk at age g + j.
    # The last send falls in the first slot of the next block, always at age L + 1.
    offset = np.arange(len(receives)) - np.repeat(starts, lengths)
    sends = np.where(offset > 0, np.repeat(levels + 1 - lengths, lengths) + offset, levels + 1)
    sends[0] = 0
    return receives, sends


def pair_by_age(receives: Ages, sends: Ages) -> NDArray[np.int64]:
    """For every slot but 0 the slot that sends to it; ages have as many senders as receivers, paired in
    order.

    Slot 0 receives from the straggler; its entry is -1.
    """
    source = np.full(len(receives), -1)
    order = np.argsort(receives, kind="stable")
    source[order[1:]] = np.argsort(sends, kind="stable")[1:]
    return source


def unroll(receives: Ages, source: NDArray[np.int64], early: int, chunks: int, rounds: int) -> Transfers:
    """The template laid out over `rounds` rounds, chunks above the last clamped to it and received once."""
    t = np.arange(rounds)[:, None]
    slots = np.arange(1, early)[None, :]
    chunk = t - receives[None, 1:] + 1
    moves = Moves()
    first = np.arange(rounds)
    # The straggler's sends: a swap with the owner while there are new chunks, then the last full sum again.
    moves.swap(first[:chunks], early, first[:chunks] % early, first[:chunks])
    moves.copy(first[chunks:], early, first[chunks:] % early, chunks - 1)
    there = chunk >= 0
    moves.copy(
        np.broadcast_to(t, chunk.shape)[there],
        ((t - source[None, 1:]) % early)[there],
        ((t - slots) % early)[there],
        np.minimum(chunk, chunks - 1)[there],
    )
    return without_repeats(moves.build(), chunks - 1, early)


def without_repeats(transfers: Transfers, chunk: int, straggler: int) -> Transfers:
    """Drop what would bring `chunk` to an early rank a second time; one port: at most once a round."""
    again = np.zeros(len(transfers), dtype=bool)
    rows = np.flatnonzero((transfers.chunk == chunk) & (transfers.dst != straggler))
    again[rows] = True
    again[rows[np.unique(transfers.dst[rows], return_index=True)[1]]] = False
    return transfers.where(~again)
