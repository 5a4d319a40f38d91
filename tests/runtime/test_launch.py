"""`latecomer.run` under torchrun: the command as it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="running needs the `run` extra: pip install -e .[run]")

from tests.runtime.cases import schedule


def torchrun(ranks: int, *command: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m"]
    return subprocess.run([*start, *command], capture_output=True, text=True, timeout=120)


def plan(tmp_path: Path) -> str:
    built = schedule("all_pairs", 3, 1)
    assert built is not None
    path = tmp_path / "plan.json"
    path.write_text(built.to_json())
    return str(path)


def test_a_plan_runs_and_is_checked(tmp_path: Path) -> None:
    done = torchrun(3, "latecomer.run", plan(tmp_path), "--size", "100KB", "--delay", "20ms", "--dtype", "bfloat16",
                    "--runs", "2")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "all_pairs, 3 ranks" in done.stdout
    assert "rank 1 arrives 20 ms after the others" in done.stdout
    assert "every element right on every rank in 3 runs" in done.stdout


def test_a_plan_for_another_number_of_ranks(tmp_path: Path) -> None:
    done = torchrun(2, "latecomer.run", plan(tmp_path))
    assert done.returncode != 0
    assert "the plan is for 3 ranks, and torchrun started 2 processes" in done.stderr
