"""Every construction at every size against the bound, each proven: `python -m benchmarks.constructions`.

Prints the published table and the largest cases, totals for all, with CPU seconds. Minutes on one core;
`--quick` takes every eighth n.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

from latecomer.schedules.check import check
from latecomer.schedules.chunks import EVERY_EARLY_RANK
from latecomer.schedules.errors import NotApplicable
from latecomer.schedules.transfers import Transfers
from latecomer.synth.algorithms import circulant, rotation, tiling
from latecomer.synth.algorithms.assembly import Prework, completed
from latecomer.synth.algorithms.circulant_collectives import all_gather, reduce_scatter
from latecomer.synth.algorithms.completion import Completion, log2_ceil

PUBLISHED = {6: 7, 12: 15, 24: 27, 48: 57, 96: 108, 192: 208}
"""Rounds of the published search at K = n - 1."""


def sizes() -> list[int]:
    every = [*range(2, 258), 512, 1000, 1024]
    return every[::8] if "--quick" in sys.argv else every


def constructions(ranks: int) -> Iterator[tuple[str, Callable[[int, int], Completion]]]:
    yield "circulant", circulant.completion
    yield "circulant, every rank an owner", lambda n, k: circulant.completion(n, k, every_owner=True)
    if ranks & (ranks - 1) == 0:
        yield "tiling", tiling.completion
    if ranks in (2, 3) or (ranks <= rotation.LARGEST and ranks & (ranks - 1)):
        yield "rotation", rotation.completion


def proven(ranks: int, completion: Completion) -> None:
    """The checker's verdict on the completion after a pre-work that brings the partial sums to the owners."""
    early, owners = ranks - 1, completion.owners
    if owners[0] == EVERY_EARLY_RANK:
        places = [c % early for c in range(len(owners))]
        prework = reduce_scatter(early, places)
        prework = Transfers.concat(prework, all_gather(early, places).shifted(log2_ceil(early)))
    else:
        prework = reduce_scatter(early, owners)
    # The pre-work sends several chunks in one message, which one port allows for one partner a round.
    check(completed("benchmark", ranks, Prework("circulant", prework), completion))


def main() -> None:
    totals: dict[str, list[float]] = {}
    print("largest cases and the published table (CPU seconds)")
    print(f"{'n':>5} {'K':>5} {'construction':<32} {'rounds':>6} {'bound':>6} {'build':>7} {'check':>7}")
    for n in sizes():
        for k in sorted({1, 2, 32, n - 1, 2 * (n - 1)}):
            for name, build in constructions(n):
                start = time.process_time()
                try:
                    completion = build(n, k)
                except NotApplicable:
                    print(f"{n:>5} {k:>5} {name:<32} not in the catalog")
                    continue
                built = time.process_time()
                proven(n, completion)
                done = time.process_time()
                bound = k + log2_ceil(n) - 1
                assert completion.rounds == completion.transfers.rounds == bound, (name, n, k)
                row = totals.setdefault(name, [0, 0, 0])
                row[0], row[1], row[2] = row[0] + 1, row[1] + built - start, row[2] + done - built
                if (n >= 256 and k in (n - 1, 2 * (n - 1))) or (n in PUBLISHED and k == n - 1):
                    note = f"  published {PUBLISHED[n]}" if n in PUBLISHED else ""
                    print(f"{n:>5} {k:>5} {name:<32} {completion.rounds:>6} {bound:>6} "
                          f"{built - start:>7.3f} {done - built:>7.3f}{note}", flush=True)
    print()
    for name, (cases, building, checking) in totals.items():
        print(f"{name}: {cases:.0f} cases, all at K + ceil(log2 n) - 1 rounds and proven; "
              f"built in {building:.1f} s, checked in {checking:.1f} s")


if __name__ == "__main__":
    main()
