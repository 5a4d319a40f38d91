"""`bounds`: what no schedule can beat, for the same question that a schedule answers.

n ranks of equal port rate, message of S bytes, β = 1 / rate, L = ⌈log2 n⌉. Times count after the last arrival.
Derivations: the docstrings below; the counting argument for synchronous AllReduce is Patarasuk & Yuan, JPDC 69 (2009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.errors import InputError
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.topology import Topology
from latecomer.schedules.units import require_range


@dataclass(frozen=True)
class Bounds:
    """Lower bounds on the time after the last arrival, µs.

    `bound_us` counts bytes at ports, `bound_latency_us` messages one after another; neither contains the other.
    `tight` tells whether `bound_us` assumes what the topology really is: equal ports that reach each other at full
    rate (a switch or a full mesh). If not it is valid (it counts the fastest port) but may be weak.
    """

    ranks: int
    size_bytes: int
    bound_us: float
    bound_latency_us: float
    tight: bool


def bounds(topology: Topology, arrivals: ArrivalProfile, size_bytes: int, *, round_latency_us: float = 0.0) -> Bounds:
    """Lower bounds for AllReduce of `size_bytes` on `topology` under one vector of `arrivals`. O(ranks²)."""
    require_range(size_bytes, round_latency_us)
    if topology.ranks != arrivals.ranks:
        raise InputError(f"the topology has {topology.ranks} ranks, the arrivals {arrivals.ranks}")
    fastest = max(max(topology.out_gbs(rank), topology.in_gbs(rank)) for rank in range(topology.ranks))
    whole_us = Fraction(size_bytes) / (Fraction(fastest) * 1000)
    units = bandwidth_bound(sorted(Fraction(a) / whole_us for a in arrivals.single))
    tight = topology.any_to_any or topology.full_mesh
    return Bounds(
        topology.ranks, size_bytes, float(units * whole_us), _latency_bound(topology, round_latency_us), tight
    )


def bandwidth_bound(arrivals: list[Fraction]) -> Fraction:
    """T ≥ (2(n−1) − M) / n for sorted `arrivals`, all in units of S·β. Exact. O(n²).

    Per byte, let a message *join* when it connects two groups of ranks whose contributions had not been combined.
    An AllReduce still needs (number of groups − 1) joins and n−1 deliveries after the last arrival, each one use of a
    send port; n ports send n·T bytes. So all depends on M, the most joins possible before the last arrival.
    With Δ_j = a_{j+1} − a_j, the joins M_j possible before a_{j+1} are at most

    * M_{j−1} + j·Δ_j: j send ports are there;
    * j−1: j ranks cannot be joined more often;
    * (i−1) + 2·Σ_{l=i+1..j} (a_{j+1} − a_l) for every i < j: at most i−1 joins among the first i ranks, and any
      other join uses a port of a newcomer (one send, one receive).

    One late rank (a = 0, …, 0, d) gives max(1, (2(n−1) − (n−1)·d) / n); nobody late gives 2(n−1)/n.
    """
    n = len(arrivals)
    scale = math.lcm(*(a.denominator for a in arrivals))
    a = [int(x * scale) for x in arrivals]  # integers from here on: exact, and fast enough for a thousand ranks
    prefix = [0]
    for value in a:
        prefix.append(prefix[-1] + value)
    joins = 0
    for j in range(2, n):
        newcomers = min((i - 1) * scale + 2 * ((j - i) * a[j] - (prefix[j] - prefix[i])) for i in range(1, j))
        joins = min(joins + j * (a[j] - a[j - 1]), (j - 1) * scale, newcomers)
    return Fraction(2 * (n - 1) * scale - joins, n * scale)


def round_bound(ranks: int, chunks: int) -> int:
    """R ≥ K + ⌈log2 n⌉ − 1 one-port rounds after the last of the ranks arrives, K equal chunks, one a message.

    Before round K the others know at most K−1 of the late rank's K chunks; after it at most one of them knows
    the rest, and the number of ranks that know a thing at most doubles in a round.
    """
    return chunks + (ranks - 1).bit_length() - 1


def schedule_round_bound(schedule: Schedule) -> int | None:
    """`round_bound` where it speaks about `schedule`: exclusive ports, one message a chunk of equal size; else None."""
    if schedule.ports != "exclusive" or not schedule.chunks.uniform or schedule.collective != "allreduce":
        return None
    moves = schedule.after_arrival
    key = (moves.round.astype("int64") * schedule.ranks + moves.src) * schedule.ranks + moves.dst
    one_chunk_messages = len(set(key.tolist())) == len(moves)
    return round_bound(schedule.ranks, len(schedule.chunks)) if one_chunk_messages else None


def _latency_bound(topology: Topology, round_latency_us: float) -> float:
    """What the last rank to arrive holds must reach all others, and a port's latencies come one after another.

    With exclusive ports a message holds both its ports for all of α, so the ranks that know a thing at most double
    per α:
    L of them. On a switch with shared ports a sender's uplink is held for the uplink's part of α, so the same is true
    of
    that part, and the last message also crosses a downlink. Elsewhere one α may serve all. A sender pays a round.
    """
    doublings = (topology.ranks - 1).bit_length()
    if topology.ports == "exclusive":
        return doublings * (_least_latency(topology) + round_latency_us)
    if topology.any_to_any and topology.switches:
        up = min(link.latency_us for link in topology.links if isinstance(link.src, int))
        down = min(link.latency_us for link in topology.links if isinstance(link.dst, int))
        return doublings * up + down + round_latency_us
    return _least_latency(topology) + round_latency_us


def _least_latency(topology: Topology) -> float:
    """No message has less: the smallest sum of latencies on a route, or a bound below it on a big switch, µs."""
    if topology.any_to_any and topology.switches:
        up = min(link.latency_us for link in topology.links if isinstance(link.src, int))
        return up + min(link.latency_us for link in topology.links if isinstance(link.dst, int))
    ranks = range(topology.ranks)
    return min(topology.pair_latency_us(a, b) for a in ranks for b in ranks if a != b and topology.has_route(a, b))
