"""One-port schedules for a late rank: pre-work, a round-optimal completion, and, for a short delay, a synchronous rest.

When the delay has no room to reduce the whole message, the message is split: the share x that can be reduced in time
takes
the completion (S·β per byte of it), the rest a synchronous AllReduce (2(n-1)/n·S·β per byte). With N owners that meets
the lower bound at every delay up to latencies; with q owners the pre-work is longer, so x = min(1, d) and
T = max(1, (2(n-1) - (n-2)·d) / n) in units of S·β.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from latecomer.schedules.chunks import Chunks
from latecomer.schedules.schedule import Phase, Schedule
from latecomer.schedules.transfers import Transfers
from latecomer.synth.algorithms import circulant_collectives, halving_doubling, ring, ring_owners
from latecomer.synth.algorithms.all_pairs import reducible
from latecomer.synth.algorithms.assembly import Prework, completed, provenance
from latecomer.synth.algorithms.completion import Completion

SHARES = 64
"""The share that is reduced early is a multiple of 1/64: exact, and small denominators for the chunk sizes."""


@dataclass(frozen=True)
class Cost:
    """Units of the α-β model for one-port rounds: a round costs `round_us`, the whole message `message_us`."""

    round_us: float
    message_us: float

    def of(self, transfers: Transfers, weights: Sequence[int]) -> float:
        """Time of one-port `transfers` in synchronous rounds, µs: a latency and the largest message each round."""
        if not len(transfers):
            return 0.0
        sizes = np.array(weights, dtype=np.float64) / sum(weights)
        ranks = int(max(transfers.src.max(), transfers.dst.max())) + 1
        # One port: a rank's rows of one round are one message.
        per_port = np.bincount(transfers.round.astype(np.int64) * ranks + transfers.src, weights=sizes[transfers.chunk])
        pad = -len(per_port) % ranks
        largest = np.pad(per_port, (0, pad)).reshape(-1, ranks).max(axis=1)
        return float((largest > 0).sum() * self.round_us + largest.sum() * self.message_us)


def schedule(
    algorithm: str,
    completion: Callable[[int, int], Completion],
    ranks: int,
    chunks: int,
    *,
    share: Fraction = Fraction(1),
    cost: Cost | None = None,
    delay_us: float = float("inf"),
) -> Schedule:
    """`completion` in `chunks` chunks for `share` of the message, the rest synchronous.

    The pre-work is the ring where the delay hides it or nothing is faster (one peer a rank), else the circulant graph.
    """
    part = completion(ranks, chunks)
    cost = cost or Cost(1.0, float("inf"))
    weights = (1,) * chunks
    scaled = Cost(cost.round_us, cost.message_us * float(share))
    before = _prework(ranks - 1, part.owners, weights, scaled, delay_us)
    whole = completed(algorithm, ranks, before, part)
    return whole if share == 1 else _with_rest(algorithm, whole, ranks, share)


def early_share(ranks: int, delay: Fraction, owners: int) -> Fraction:
    """The share of the message that `delay`·S·β has room to reduce to `owners` of the early ranks, in 64ths."""
    room = reducible(ranks, delay) if owners >= ranks - 1 else min(Fraction(1), delay)
    return Fraction(int(room * SHARES), SHARES)


def _prework(early: int, owners: Sequence[int], weights: Sequence[int], cost: Cost, delay_us: float) -> Prework:
    """A ReduceScatter of the early ranks to `owners`."""
    if early < 2:
        return Prework("none", Transfers.concat())
    if len(set(owners)) == early or len(set(owners)) == len(owners):
        options = [
            ring.prework(early, owners),
            Prework("circulant", circulant_collectives.reduce_scatter(early, owners)),
        ]
    else:
        options = [
            Prework("ring to few owners", ring_owners.reduce_to_owners(early, owners)),
            Prework("circulant to few owners", circulant_collectives.reduce_to_owners(early, owners)),
        ]
    times = [cost.of(option.transfers, weights) for option in options]
    simple_is_hidden = times[0] <= delay_us
    return options[0] if simple_is_hidden or times[0] <= 1.02 * min(times) else options[int(np.argmin(times))]


def _with_rest(algorithm: str, whole: Schedule, ranks: int, share: Fraction) -> Schedule:
    """`whole` on the first `share` of the message, then a synchronous AllReduce of the rest."""
    rest = halving_doubling.schedule(ranks) if ranks & (ranks - 1) == 0 else circulant_collectives.schedule(ranks)
    chunks = len(whole.chunks)
    moves, start = rest.transfers, whole.transfers.rounds
    moved = Transfers.of(
        moves.round + start,
        moves.src,
        moves.dst,
        moves.chunk + chunks,
        moves.reduce,
        moves.phase + 2,
        *moves.columns()[6:],
    )
    late, rest_weight = share.numerator * ranks, (share.denominator - share.numerator) * chunks
    return Schedule(
        ranks=ranks,
        binding=whole.binding,
        ports="exclusive",
        stages=whole.stages,
        phases=(*whole.phases, Phase(kind="synchronous", stage=1)),
        chunks=Chunks(
            weights=(late,) * chunks + (rest_weight,) * ranks, owners=(*whole.chunks.owners, *rest.chunks.owners)
        ),
        patterns=whole.patterns,
        provenance=provenance(
            algorithm,
            chunks + ranks,
            {**whole.provenance.parameters, "early_share": f"{share}", "rest": rest.provenance.algorithm},
        ),
        transfers=Transfers.concat(whole.transfers, moved),
    )
