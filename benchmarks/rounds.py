"""Rounds after the arrival with K = n-1 chunks: the bound, our constructions, the published schedule.

python benchmarks/rounds.py [N ...]
"""

from __future__ import annotations

import sys

from latecomer.schedules.bounds import round_bound
from latecomer.synth.algorithms import circulant, stragglar

PAPER = {6: 7, 12: 15, 24: 27, 48: 57, 96: 108, 192: 208}
AUTHORS_CODE = {6: 7, 10: 12, 12: 15, 14: 17, 18: 21, 20: 24, 22: 26, 24: 27, 26: 31, 28: 33, 30: 38, 34: 40, 36: 43,
                40: 47, 44: 52, 46: 53, 48: 55, 96: 106}  # fmt: skip


def main(sizes: list[int]) -> None:
    print("| n | bound | circulant | paper | its code | ours, as published |")
    print("|---|---|---|---|---|---|")
    for n in sizes:
        published = stragglar.schedule(n).rounds if n <= 96 or n & (n - 1) == 0 else "–"
        found = circulant.completion(n, n - 1).rounds
        columns = (n, round_bound(n, n - 1), found, PAPER.get(n, "–"), AUTHORS_CODE.get(n, "–"), published)
        print("| " + " | ".join(map(str, columns)) + " |")


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or [6, 10, 12, 14, 18, 20, 22, 24, 26, 28, 30, 48, 96, 192])
