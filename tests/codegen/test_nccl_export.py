"""`latecomer export --to nccl`: from a question to a project."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from latecomer.cli import cli


@pytest.fixture
def plan(tmp_path: Path) -> str:
    file = str(tmp_path / "plan.json")
    arguments = [
        "synth",
        "--topology",
        "switch:6@450GB/s",
        "--late",
        "2",
        "--delay",
        "5ms",
        "--size",
        "64MB",
        "-o",
        file,
    ]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return file


def test_export(plan: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["export", plan, "--to", "nccl", "-o", str(tmp_path / "project")])
    assert done.exit_code == 0, done.output
    assert "ring and stragglar for the benchmark" in done.output
    assert "late: rank 2" in (tmp_path / "project" / "plan_table.cpp").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"), [([], "name it with -o DIR"), (["--max-bytes", "1GiB", "-o", "x"], "drop the options")]
)
def test_wrong_use(plan: str, arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["export", plan, "--to", "nccl", *arguments])
    assert done.exit_code == 2
    assert message in done.output
