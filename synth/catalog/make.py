"""Makes the catalog of rotational templates: `python -m latecomer.synth.catalog.make [n ...]`.

For every n from 4 to 64 that is not a power of two (tiling serves those) it solves for a template, smallest largest
age first, and for a tail, and writes `rotation.json`; with arguments it renews these n only and keeps the
others. Deterministic for one version of OR-tools; minutes on one core. Prints the CPU seconds of each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from latecomer.synth.algorithms.completion import log2_ceil
from latecomer.synth.algorithms.rotation import CATALOG, DIGITS, LARGEST
from latecomer.synth.catalog import tail_search, template_search

ATTEMPTS = 12
"""Template seeds to try for each largest age."""

Entry = dict[str, str | list[str]]


def entry(ranks: int) -> Entry | None:
    """A template and its tail for `ranks`, or None where the searches stall."""
    levels = log2_ceil(ranks)
    for seed in range(1, ATTEMPTS + 1):
        for oldest in (levels + 2, levels + 3):
            template = template_search.search(ranks, oldest, seed, limit=10.0)
            if template is None:
                continue
            tail = tail_search.search(ranks, template[0], range(seed, seed + 20))
            if tail is not None:
                return {
                    "receives": _text(template[0]),
                    "sends": _text(template[1]),
                    "tail_sends": [_row(sends, ranks) for sends, _ in tail],
                    "tail_receives": [_row(receives, ranks - 1) for _, receives in tail],
                }
    return None


def _text(ages: list[int]) -> str:
    return "".join(DIGITS[age] for age in ages)


def _row(chunk_of: Mapping[int, int], ranks: int) -> str:
    """Chunk -1 is digit 1, and so on; 0 stands for nothing."""
    return "".join(DIGITS[-chunk_of.get(rank, 0)] for rank in range(ranks))


def main(arguments: list[str]) -> None:
    """Solve, and write the file after every entry."""
    path = Path(__file__).with_name(CATALOG)
    entries: dict[int, Entry] = {}
    if arguments and path.exists():
        entries = {int(n): kept for n, kept in json.loads(path.read_text(encoding="utf-8")).items()}
    for ranks in map(int, arguments) if arguments else range(4, LARGEST + 1):
        if ranks & (ranks - 1) == 0:
            continue
        start = time.process_time()
        found = entry(ranks)
        print(f"n = {ranks}: {'solved' if found else 'stalled'} in {time.process_time() - start:.1f} s", flush=True)
        if found:
            entries[ranks] = found
        text = ",\n".join(f'"{n}": {json.dumps(entries[n])}' for n in sorted(entries))
        path.write_text("{\n" + text + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
