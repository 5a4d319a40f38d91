"""How many chunks: the closed forms of the α-β model, and the preference for powers of two.

Runtimes serve only element counts that the number of chunks divides, and message sizes tend to be powers of two: so a
power of two is taken where that costs less than 2 % (Pipelining; see the module of each construction for its T(K)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from latecomer.synth.algorithms.completion import log2_ceil

MAX_CHUNKS: Final = 256
"""Beyond this, more chunks gain under 1 % for any n that a program can be made for, and cost memory everywhere."""
MAX_SEGMENTS: Final = 64
PREFERENCE: Final = 1.02


@dataclass(frozen=True)
class Model:
    """The numbers that decide, µs: a round's fixed cost, a message's latency, S·β, and how late the last rank is.

    `separate_links`: a rank has a link of its own to every peer, so latencies of several messages overlap.
    """

    round_us: float
    message_latency_us: float
    message_us: float
    delay_us: float
    separate_links: bool = False

    def scaled(self, share: float) -> Model:
        """The same for a message of `share` the size."""
        return replace(self, message_us=self.message_us * share)


def best_rounds(ranks: int, model: Model) -> int:
    """K that minimises (K + L - 1)(α + S·β/K), near sqrt((L-1)·S·β/α); α a round with one message."""
    alpha, levels = model.round_us + model.message_latency_us, log2_ceil(ranks)
    ideal = math.sqrt((levels - 1) * model.message_us / alpha) if alpha else math.inf
    return _best(ideal, MAX_CHUNKS, lambda k: (k + levels - 1) * (alpha + model.message_us / k))


def best_segments(ranks: int, model: Model) -> int:
    """m that minimises (m+1)·α + S·β(1 + (n-2)/((n-1)m)); α a round with n-1 messages."""
    in_turn = 1 if model.separate_links else ranks - 1
    alpha = model.round_us + in_turn * model.message_latency_us
    spoiled = (ranks - 2) / (ranks - 1) * model.message_us
    ideal = math.sqrt(spoiled / alpha) if alpha else math.inf if spoiled else 1.0
    return _best(ideal, MAX_SEGMENTS, lambda m: (m + 1) * alpha + model.message_us + spoiled / m)


def _best(ideal: float, most: int, time: Callable[[int], float]) -> int:
    ideal = min(max(ideal, 1.0), float(most))
    best = min((math.floor(ideal), math.ceil(ideal)), key=time)
    exponent = math.floor(math.log2(ideal))
    power = min((k for k in (2**exponent, 2 ** (exponent + 1)) if k <= most), key=time)
    return power if time(power) <= PREFERENCE * time(best) else best
