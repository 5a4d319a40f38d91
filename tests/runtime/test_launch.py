"""`latecomer.run` under torchrun: the command as it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="running needs the `run` extra: pip install -e .[run]")

from latecomer.runtime.forked import run_forked
from latecomer.runtime.launch import join, require_room
from latecomer.schedules.errors import InputError
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


def test_a_backend_that_torch_does_not_start() -> None:
    def work(rank: int) -> str:
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        said = []
        for backend in ("garbage", "cpu:gloo,cuda:nothing", "mpi"):
            with pytest.raises(InputError) as caught:
                join(backend, 60.0, "latecomer bench")
            said.append(str(caught.value))
        os.environ["RANK"] = "first"
        with pytest.raises(InputError) as caught:
            join("gloo", 60.0, "latecomer bench")
        return "\n".join([*said, str(caught.value)])

    [outcome] = run_forked(1, work, timeout_s=60.0)
    assert outcome.error is None, outcome.error
    lines = outcome.value.splitlines()
    assert "torch.distributed has no backend 'garbage'; it has gloo, nccl" in lines[0]
    assert "cannot start a process group with backend mpi: " in lines[2]
    assert "backend gloo: invalid literal" in lines[3]


def test_a_message_that_the_machine_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    require_room(1000)
    with pytest.raises(InputError, match=r"with 8 ranks on this machine, which has .* take a smaller size"):
        require_room(2**50)
