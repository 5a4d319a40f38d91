"""What the generated project looks like: the same every time, short, and without a case per rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from latecomer.codegen.nccl_program import fixed_files, project, write_project
from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.errors import InputError
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.topology import Topology
from latecomer.synth.synthesize import synthesize


def plan(algorithm: str, ranks: int, chunks: int | None = None) -> Schedule:
    arrivals = ArrivalProfile.late(ranks, ranks - 1, 1e6)
    return synthesize(Topology.switch(ranks, 450), arrivals, 1 << 26, algorithm=algorithm, chunks=chunks)


@pytest.mark.parametrize(("ranks", "algorithm", "chunks"), [(4, "tiling", 6), (8, "circulant", 14)])
def test_golden_tables(golden: Callable[[str, str], None], ranks: int, algorithm: str, chunks: int) -> None:
    golden(f"{algorithm}_{ranks}_table.cpp", project(plan(algorithm, ranks, chunks))["plan_table.cpp"])


def test_golden_source(golden: Callable[[str, str], None]) -> None:
    files = project(plan("tiling", 4, 6), baselines={"ring": plan("ring", 4)})
    for name in (
        "allreduce.cu",
        "kernels.h",
        "latecomer_allreduce.h",
        "latecomer_table.h",
        "baselines.cpp",
        "CMakeLists.txt",
    ):
        golden(name, files[name])


def test_the_same_plan_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_project(plan("circulant", 8, 14), tmp_path / name, baselines={"ring": plan("ring", 8)})
    first, second = ({f.name: f.read_bytes() for f in (tmp_path / name).iterdir()} for name in ("a", "b"))
    assert first == second
    assert sorted(first) == [
        "CMakeLists.txt", "README.md", "allreduce.cu", "baselines.cpp", "check.h", "kernels.h", "latecomer_allreduce.h",
        "latecomer_table.h", "main.cu", "plan_table.cpp", "rendezvous.h", "ring_table.cpp",
    ]  # fmt: skip


@pytest.mark.parametrize("algorithm", ["circulant", "all_pairs", "tiling", "stragglar", "ring", "halving_doubling"])
def test_length(algorithm: str) -> None:
    eight, sixty_four = (project(plan(algorithm, n)) for n in (8, 64))

    def lines(files: dict[str, str], *names: str) -> int:
        return sum(files[name].count("\n") for name in names)

    assert lines(eight, "allreduce.cu", "plan_table.cpp") < 600
    others = [name for name in eight if name not in ("plan_table.cpp", "README.md", "CMakeLists.txt")]
    assert [eight[name] for name in others] == [sixty_four[name] for name in others]


def test_the_source_names_no_rank_and_no_plan() -> None:
    for name, text in fixed_files().items():
        assert "rank ==" not in text.replace("rank == 0", "").replace("meet.rank == late", ""), name
        assert all(len(line) <= 120 for line in text.splitlines()), name
    assert all(len(line) <= 120 for line in project(plan("all_pairs", 8))["plan_table.cpp"].splitlines())


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="baseline ring is for 4 ranks, the plan for 8"):
        project(plan("ring", 8), baselines={"ring": plan("ring", 4)})
    with pytest.raises(InputError, match="letters, digits"):
        project(plan("ring", 8), baselines={"a ring": plan("ring", 8)})
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(InputError, match="cannot write the project"):
        write_project(plan("ring", 4), blocked)
