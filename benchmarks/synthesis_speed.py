"""CPU seconds to synthesize and check large schedules, beside the published construction, all in one run.

    python benchmarks/synthesis_speed.py [N ...]

"published" is our implementation of the published construction (powers of two: its pairing; other even n: a
maximum-weight
matching a round), "search" that matching search alone, which is what the published tool does for other even n.
Each row runs in a process of its own, so that the peak of memory is its own.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time


def measure(name: str, ranks: int, chunks: int) -> tuple[float, float, int, int]:
    import scipy.sparse.csgraph  # noqa: F401 - a library's import is not synthesis

    from latecomer.schedules.check import check
    from latecomer.synth import one_port
    from latecomer.synth.algorithms import circulant, stragglar, tiling

    start = time.process_time()
    if name == "published":
        schedule = stragglar.schedule(ranks)
    else:
        completion = {"tiling": tiling.completion, "circulant": circulant.completion}[name]
        schedule = one_port.schedule(name, completion, ranks, chunks)
    built = time.process_time()
    report = check(schedule)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return built - start, time.process_time() - built, report.rounds, peak


def main(sizes: list[int]) -> None:
    print(
        f"{'algorithm':10} {'n':>5} {'K':>5} {'rounds':>6} {'build s':>8} {'check s':>8} {'sum s':>6} {'peak MiB':>8}"
    )
    for n in sizes:
        names = ["circulant", *(["tiling", "published"] if n & (n - 1) == 0 else ["published"] if n <= 48 else [])]
        for name in names:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                built, checked, rounds, peak = pool.apply(measure, (name, n, n - 1))
            print(
                f"{name:10} {n:5} {n - 1:5} {rounds:6} {built:8.3f} {checked:8.3f} {built + checked:6.2f} {peak:8}",
                flush=True,
            )


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or [8, 48, 64, 100, 256, 257, 512, 1000, 1024])
