"""What there is to choose from: every algorithm under one signature.

To add one: write a pure function in `synth/algorithms/` and a line in `ALGORITHMS`. Order decides ties.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from latecomer.schedules.errors import InputError, LimitExceeded, NotApplicable
from latecomer.schedules.schedule import PortModel, Schedule
from latecomer.synth import chunking, one_port
from latecomer.synth.algorithms import (
    all_pairs,
    circulant,
    circulant_collectives,
    direct,
    halving_doubling,
    halving_doubling_any,
    ring,
    rotation,
    stragglar,
    tiling,
)
from latecomer.synth.algorithms.assembly import Parameters, completed
from latecomer.synth.algorithms.completion import Completion, log2_ceil
from latecomer.synth.chunking import Model


@dataclass(frozen=True)
class Request:
    """What a construction is asked for: the last role is late by `model.delay_us`; `chunks` None means: choose."""

    ranks: int
    chunks: int | None
    model: Model

    @property
    def delay(self) -> Fraction:
        """The delay in units of S·β."""
        return Fraction(self.model.delay_us) / Fraction(self.model.message_us)


@dataclass(frozen=True)
class Algorithm:
    """`build` makes the schedule in roles, or raises `NotApplicable`; `late`: it makes use of a late rank.

    `automatic`: `--algorithm auto` considers it. `listed`: `compare` shows it (a search is not run unasked).
    `static`: it can be written to a file that a runtime loads. `slow`: for that many ranks it is not run unasked.
    """

    name: str
    summary: str
    late: bool
    ports: PortModel
    build: Callable[[Request], Schedule]
    automatic: bool = True
    listed: bool = True
    slow: Callable[[int], bool] = lambda ranks: False
    static: bool = True


def named(name: str) -> Algorithm:
    """The algorithm called `name`; `InputError` with the nearest names for any other."""
    for algorithm in ALGORITHMS:
        if algorithm.name == name:
            return algorithm
    names = [algorithm.name for algorithm in ALGORITHMS]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are auto, {', '.join(names)}"
    raise InputError(f"no algorithm is called {name!r}; {hint}")


def _synchronous(build: Callable[[int, int | None], Schedule]) -> Callable[[Request], Schedule]:
    return lambda request: build(request.ranks, request.chunks)


def _one_port(
    name: str, completion: Callable[[int, int], Completion], few_owners: bool
) -> Callable[[Request], Schedule]:
    def build(request: Request) -> Schedule:
        ranks, model = request.ranks, request.model
        owners = log2_ceil(ranks) if few_owners else ranks - 1
        share = one_port.early_share(ranks, request.delay, owners)
        if not share:
            raise NotApplicable(
                f"{name}: the delay is too short to reduce any of the message early (1/{one_port.SHARES} at least)"
            )
        chunks = request.chunks or chunking.best_rounds(ranks, model.scaled(float(share)))
        cost = one_port.Cost(model.round_us + model.message_latency_us, model.message_us)
        return one_port.schedule(name, completion, ranks, chunks, share=share, cost=cost, delay_us=model.delay_us)

    return build


def _all_pairs(request: Request) -> Schedule:
    segments = request.chunks or chunking.best_segments(request.ranks, request.model)
    if not int(all_pairs.reducible(request.ranks, request.delay) * segments):
        raise NotApplicable(
            f"all_pairs: the delay is too short to reduce one of {segments} segments; that is all_pairs_sync"
        )
    return all_pairs.schedule(request.ranks, segments, delay=request.delay)


def _adaptive(request: Request) -> Schedule:
    segments = request.chunks or min(32, chunking.best_segments(request.ranks, request.model))
    rows = segments**2 * request.ranks**2 * 3
    if rows > MAX_BRANCH_ROWS:
        most = max(1, int((MAX_BRANCH_ROWS / 3 / request.ranks**2) ** 0.5))
        if request.chunks:
            raise NotApplicable(
                f"adaptive: {segments} segments at {request.ranks} ranks make branches of about {rows:,} transfers; "
                f"take --chunks {most} or fewer"
            )
        segments = min(segments, most)
    return all_pairs.adaptive(request.ranks, segments)


MAX_BRANCH_ROWS: Final = 4_000_000
"""Transfers in all branches of an adaptive schedule: about 130 MB in memory."""


def _halving_doubling(request: Request) -> Schedule:
    power_of_two = request.ranks & (request.ranks - 1) == 0
    build = halving_doubling.schedule if power_of_two else halving_doubling_any.schedule
    return build(request.ranks, request.chunks)


def _exact(request: Request) -> Schedule:
    from latecomer.synth import exact

    ranks, chunks = request.ranks, request.chunks or request.ranks - 1
    owners = tuple(c % (ranks - 1) for c in range(chunks))
    try:
        found = exact.completion(ranks, chunks, owners=owners)
    except LimitExceeded as error:
        raise NotApplicable(str(error)) from error
    if found.rounds is None or found.transfers is None:
        raise NotApplicable(f"exact: {found} in the time it has; take a construction, such as circulant")
    part = Completion(found.transfers, owners, found.rounds)
    parameters: Parameters = {"search": str(found), "proven_rounds": found.bound}
    return completed("exact", ranks, ring.prework(ranks - 1, owners), part, parameters=parameters)


ALGORITHMS: Final = (
    Algorithm("ring", "round a ring, any n", False, "exclusive", _synchronous(ring.schedule)),
    Algorithm("halving_doubling", "recursive halving and doubling, any n", False, "exclusive", _halving_doubling),
    Algorithm(
        "circulant_allreduce",
        "2⌈log2 n⌉ rounds on the circulant graph, any n",
        False,
        "exclusive",
        _synchronous(circulant_collectives.schedule),
    ),
    Algorithm(
        "all_pairs_sync",
        "two rounds, every rank to every other",
        False,
        "shared",
        _synchronous(all_pairs.synchronous_schedule),
    ),
    Algorithm("direct", "whole messages", True, "exclusive", lambda r: direct.schedule(r.ranks, r.chunks)),
    Algorithm(
        "stragglar",
        "as published; even n",
        True,
        "exclusive",
        lambda r: stragglar.schedule(r.ranks, r.chunks),
        slow=lambda ranks: ranks > 32 and ranks & (ranks - 1) != 0,
    ),
    Algorithm(
        "tiling", "round-optimal, any K; n = 2^L", True, "exclusive", _one_port("tiling", tiling.completion, False)
    ),
    Algorithm(
        "rotation",
        "round-optimal, any K; n ≤ 64, from a catalog",
        True,
        "exclusive",
        _one_port("rotation", rotation.completion, False),
    ),
    Algorithm(
        "circulant",
        "round-optimal, any n and K, few peers",
        True,
        "exclusive",
        _one_port("circulant", circulant.completion, True),
    ),
    Algorithm("all_pairs", "segmented, every rank to every other, planned for the delay", True, "shared", _all_pairs),
    Algorithm(
        "adaptive", "all_pairs that needs no delay in advance", True, "shared", _adaptive, automatic=False, static=False
    ),
    Algorithm("exact", "by exhaustive search; about 6 ranks", True, "exclusive", _exact, automatic=False, listed=False),
)

LISTED: Final = tuple(algorithm for algorithm in ALGORITHMS if algorithm.listed)
