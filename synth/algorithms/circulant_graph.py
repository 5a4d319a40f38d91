"""The circulant graph: pipelined broadcast of K blocks to p ranks in K - 1 + ⌈log2 p⌉ rounds, for every p.

Source: Träff, "Optimal Broadcast Schedules in Logarithmic Time with Applications to Broadcast, All-Broadcast,
Reduction and All-Reduction", arXiv 2407.18004. Optimal: one port, equal blocks (the last block leaves the
root in round K-1 at the earliest and doubles from there). Each rank works out on its own, in O(log p), which
block it receives in each of q = ⌈log2 p⌉ consecutive rounds; the schedule repeats from there with blocks q
higher.

Ranks stand in a circle of positions 0 … p-1, the root is position 0. With skips 1 = skip[0] < … < skip[q] =
p, in a round of index k every rank r sends to r + skip[k] and receives from r - skip[k]; the last round has
k = q-1. Schedules count blocks from the present stretch of q rounds on: a negative number is a block of the
stretch before. They satisfy, and tests check,

1. what a rank receives in a round is what the rank it receives from sends in it;
2. a rank sends only what it has received before, in this stretch or the one before;
3. in any stretch a rank receives q different blocks: its base block b as a new one, and -1 … -q except b-q;
4. the root sends 0 … q-1 in order.

Block numbers above K-1 mean block K-1, and below 0 nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from latecomer.synth.algorithms.completion import log2_ceil

Numbers = NDArray[np.int64]


def skips(positions: int) -> tuple[int, ...]:
    """skip[q] = p and skip[k] = ⌈skip[k+1] / 2⌉: the distances of the graph, from 1 up to p itself."""
    found = [positions]
    while found[-1] > 1:
        found.append((found[-1] + 1) // 2)
    return tuple(reversed(found))


def base_block(skip: tuple[int, ...], position: int) -> int:
    """The block a position receives first in a stretch: the smallest skip of its largest-first sum of skips.

    The root's is q, which stands for none.
    """
    last, rest = len(skip) - 1, position
    for k in reversed(range(len(skip) - 1)):
        if skip[k] <= rest:
            last, rest = k, rest - skip[k]
    return last


def receive_schedule(skip: tuple[int, ...], position: int) -> list[int]:
    """The block `position` receives in each of the q rounds of a stretch, in O(q) steps.

    A depth-first search for sums of distinct skips that lead round the circle to p + position. Each sum found
    is a path from the root along which the block of one round arrives; the skip taken last names the block.
    """
    p, q = skip[-1], len(skip) - 1
    base, goal = base_block(skip, position), skip[-1] + position
    # Skips from large to small, without the base block's: index q, the skip p itself, stands for that one.
    # A linked list, because a skip leaves it when it becomes a block; index -1 is its end and its head.
    indices = [e for e in range(q, -1, -1) if e != base]
    after = dict(zip([-1, *indices], [*indices, -1], strict=True))
    before = dict(zip([*indices, -1], [-1, *indices], strict=True))
    blocks: list[int] = []
    last_sum = 2 * p

    def search(total: int, e: int) -> None:
        nonlocal last_sum
        while e != -1 and len(blocks) < q:
            if total + skip[e] <= goal - skip[len(blocks)] and total + skip[e] < last_sum:
                if total + skip[e] <= goal - skip[len(blocks) + 1]:
                    search(total + skip[e], after[e])
                if len(blocks) == q or total > goal - skip[len(blocks) + 1]:
                    return
                last_sum = total + skip[e]
                blocks.append(base if e == q else e - q)
                after[before[e]], before[after[e]] = after[e], before[e]
            e = after[e]

    search(0, after[-1])
    return blocks


@lru_cache(maxsize=16)
def schedules(positions: int) -> tuple[Numbers, Numbers]:
    """Receive and send schedules of all positions, shape (p, q) each; row 0, the root, receives nothing.

    What a rank sends in a round is what the rank it sends to receives. O(p log p).
    """
    skip = skips(positions)
    receives = np.array([receive_schedule(skip, r) for r in range(positions)], dtype=np.int64)
    receives = receives.reshape(positions, len(skip) - 1)
    to = (np.arange(positions)[:, None] + np.array(skip[:-1], dtype=np.int64)) % positions
    sends = np.take_along_axis(receives, to, axis=0)
    sends[0] = np.arange(len(skip) - 1)
    receives.flags.writeable = sends.flags.writeable = False
    return receives, sends


@dataclass(frozen=True)
class Hops:
    """Columns of equal length, sorted by round: in `round`, `src` sends `block` to `dst` (positions)."""

    round: Numbers
    src: Numbers
    dst: Numbers
    block: Numbers


def phase_offset(positions: int, blocks: int) -> int:
    """The index k of the first round, such that the last of the K - 1 + q rounds has k = q - 1."""
    q = log2_ceil(positions)
    return (1 - blocks) % q if q else 0


def broadcast(positions: int, blocks: int) -> Hops:
    """Every position but the root receives each of the blocks 0 … K-1 exactly once, in K - 1 + q rounds.

    The root first sends block c in round c. O(K·p).
    """
    skip, q = skips(positions), log2_ceil(positions)
    receives, _ = schedules(positions)
    offset = phase_offset(positions, blocks)
    t = np.arange(blocks - 1 + q if q else 0)
    k = (t + offset) % max(q, 1)
    block = receives[1:, k].T - offset + (q * ((t + offset) // max(q, 1)))[:, None]
    rows, dst = np.nonzero(block >= 0)
    found = np.minimum(block[rows, dst], blocks - 1)
    dst += 1
    # Numbers of K-1 and above mean block K-1: only the first of them is news.
    news = found < blocks - 1
    last = np.flatnonzero(~news)
    news[last[np.unique(dst[last], return_index=True)[1]]] = True
    rows, dst, found = rows[news], dst[news], found[news]
    src = (dst - np.array(skip)[k[rows]]) % positions
    return Hops(rows, src, dst, found)
