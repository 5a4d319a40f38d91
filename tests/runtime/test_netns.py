"""The emulated network, a short version: what is late is hidden there too, and the result is right."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="running needs the `run` extra: pip install -e .[run]")

from latecomer.runtime.bench import Case, prepare
from latecomer.schedules.topology import Topology

RANKS, MBIT, SIZE = 4, 100.0, 4 * 2**20


def netns() -> Any:
    """benchmarks/netns.py as a module."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "netns.py"
    spec = importlib.util.spec_from_file_location("latecomer_netns", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.netns
def test_a_late_rank_costs_less_than_a_ring() -> None:
    network = netns()
    why = network.unavailable()
    if why:
        pytest.skip(f"no network namespaces here (they need root on Linux): {why}")
    topology = Topology.switch(RANKS, MBIT / 8e3, alpha_us=100.0)
    chosen = {"ring": None, "all_pairs": 8, "adaptive": 8}
    cases = [Case(name, SIZE, RANKS - 1, 400e3, 0, chunks) for name, chunks in chosen.items()]
    ready = prepare(cases, topology, 1000.0, lambda case, why: pytest.fail(why))
    with network.Network(RANKS, MBIT) as emulated:
        rows = network.run(emulated, ready, runs=3, timeout_s=60.0)
    times = {row.algorithm: row.time_min_us for row in rows}
    # 1.5 at best for four ranks; loaded machines measure less.
    assert times["ring"] / times["all_pairs"] > 1.15, times
    assert times["ring"] / times["adaptive"] > 1.1, times
    assert next(row.cut for row in rows if row.algorithm == "adaptive") == 8
