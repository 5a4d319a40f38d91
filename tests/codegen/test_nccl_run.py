"""The generated program itself, unmodified, compiled by g++ against the CPU stand-in and run, one thread a rank."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from latecomer.codegen.nccl_program import table_source, write_project
from latecomer.codegen.nccl_table import MAX_TOTAL, OUTPUT, RankTable, Round, Spot, Step, Table, lower
from latecomer.runtime.native import build, shim_directory
from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.errors import LatecomerError, NotApplicable
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.topology import Topology
from latecomer.synth.registry import ALGORITHMS
from latecomer.synth.synthesize import synthesize

Result = subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Object files of this session, shared by its workers: the source is the same for every plan."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "nccl-objects"
    place.mkdir(exist_ok=True)
    return place


def plan(algorithm: str, ranks: int, late: int, chunks: int | None = None) -> Schedule:
    arrivals = ArrivalProfile.late(ranks, late, 1e6)
    return synthesize(Topology.switch(ranks, 450), arrivals, 1 << 26, algorithm=algorithm, chunks=chunks)


def every_plan(ranks: int, late: int) -> dict[str, Schedule]:
    """One schedule per algorithm that serves `ranks`; of an adaptive one, three of its courses."""
    plans: dict[str, Schedule] = {}
    for algorithm in ALGORITHMS:
        if algorithm.name == "exact":
            continue  # its schedules are the same kind of thing, and a solver makes them
        try:
            schedule = plan(algorithm.name, ranks, late, chunks=None if algorithm.name == "direct" else 5)
        except NotApplicable:
            try:
                schedule = plan(algorithm.name, ranks, late)
            except NotApplicable:
                continue
        if not schedule.branches:
            plans[algorithm.name] = schedule
        for course in sorted({0, 1, len(schedule.branches) - 1} & set(range(len(schedule.branches)))):
            plans[f"{algorithm.name}_{course}"] = schedule.resolve(course)
    return plans


def program(
    place: Path, objects: Path, schedule: Schedule, baselines: dict[str, Schedule] | None = None, *flags: str
) -> Path:
    write_project(schedule, place, baselines=baselines)
    return build(place, what="benchmark", flags=flags or ("-Werror",), cache=objects)


def run(bench: Path, ranks: int, *arguments: str, **environment: str) -> Result:
    """Ends by itself: the stand-in reports a deadlock after 10 s at most, here mostly sooner."""
    command = [str(bench), "--threads", str(ranks), *arguments]
    variables = os.environ | {"LC_SHIM_TIMEOUT_S": "10"} | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=variables)


ONE_CALL = ("--iterations", "1", "--warmup", "0")


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 7, 8, 16])
def test_every_algorithm_type_size_and_late_rank(ranks: int, tmp_path: Path, objects: Path) -> None:
    plans = every_plan(ranks, late=ranks // 2)
    assert {"ring", "circulant", "all_pairs", "direct"} <= set(plans)
    bench = program(tmp_path, objects, plans["circulant"], plans)
    count = "1009" if ranks == 16 else "3001"
    done = run(bench, ranks, "--check", "--check-count", count)
    assert (done.stdout, done.stderr, done.returncode) == ("ok: 0 elements wrong\n", "", 0)
    for late in range(ranks) if ranks < 16 else (0, 7, 15):
        size = ("--min-bytes", "4004", "--max-bytes", "4004", "--delay-us", "300", "--late", str(late))
        done = run(bench, ranks, *size, *ONE_CALL)
        assert (done.stderr, done.returncode) == ("", 0), late
        assert done.stdout.count("\n") == len(plans) + 4  # head, one row per plan and for ncclAllReduce, verdict


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers(sanitizer: str, tmp_path: Path, objects: Path) -> None:
    for ranks in (3, 5, 8):
        plans = {name: plan(name, ranks, 1) for name in ("all_pairs", "direct", "ring", "circulant_allreduce")}
        flags = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-g1", "-O0")
        bench = program(tmp_path / str(ranks), objects, plan("circulant", ranks, 1, 7), plans, *flags)
        done = run(bench, ranks, "--check", "--check-count", "503", LC_SHIM_TIMEOUT_S="60")
        assert (done.stdout, done.stderr, done.returncode) == ("ok: 0 elements wrong\n", "", 0)


@pytest.mark.parametrize(
    ("algorithm", "ranks", "chunks"),
    [
        ("circulant", 8, 14),
        ("tiling", 4, 6),
        ("stragglar", 8, None),
        ("all_pairs", 5, 3),
        ("adaptive", 5, 3),
        ("ring", 7, None),
        ("halving_doubling", 8, None),
    ],
)
def test_log_equals_schedule(algorithm: str, ranks: int, chunks: int | None, tmp_path: Path, objects: Path) -> None:
    schedule = plan(algorithm, ranks, ranks - 1, chunks)
    schedule = schedule.resolve(1) if schedule.branches else schedule
    elements = 4001
    log = tmp_path / "log"
    size = ("--min-bytes", str(4 * elements), "--max-bytes", str(4 * elements))
    bench = program(tmp_path, objects, schedule)
    done = run(bench, ranks, *size, *ONE_CALL, "--only", "plan", LC_SHIM_LOG=str(log))
    assert done.returncode == 0, done.stderr
    assert logged(log, schedule, elements) == wanted(schedule, elements)


@pytest.mark.parametrize("algorithm", ["circulant", "tiling", "stragglar", "direct", "all_pairs"])
def test_early_ranks_reduce_before_the_late_rank_enters(algorithm: str, tmp_path: Path, objects: Path) -> None:
    """The late rank comes 800 ms after the others; whatever does not concern it was done long before."""
    ranks, late, delay_us = 4, 2, 800_000
    schedule = plan(algorithm, ranks, late)
    log = tmp_path / "log"
    size = ("--min-bytes", "40000", "--max-bytes", "40000", "--delay-us", str(delay_us), "--only", "plan")
    done = run(program(tmp_path, objects, schedule), ranks, *size, *ONE_CALL, LC_SHIM_LOG=str(log))
    assert (done.stderr, done.returncode) == ("", 0)
    rows = [[int(field) for field in line.split() if "+" not in field] for line in log.read_text().splitlines()]
    rows = [row for row in rows if row[3] > 1]  # without the groups that connect the ranks
    entered = min(row[5] for row in rows if late in row[:2])
    before = [row for row in rows if row[5] < entered - delay_us / 2]
    messages = {(r, s, d) for r, s, d in zip(*(c.tolist() for c in schedule.prework.columns()[:3]), strict=True)}
    assert len(before) >= len(messages) > 0
    assert not any(late in row[:2] for row in before)


Message = tuple[int, int, int, int]
"""(source, destination, number of the group at the source, at the destination)"""


def wanted(schedule: Schedule, elements: int) -> dict[Message, set[int]]:
    """Message → the elements in it, of every message of the schedule."""
    bounds, stages = schedule.chunks.bounds(elements).tolist(), [phase.stage for phase in schedule.phases]
    columns = (c.tolist() for c in schedule.transfers.columns())
    rows = [
        ((round, stages[phase]), schedule.binding[src], schedule.binding[dst], chunk)
        for round, src, dst, chunk, _, phase, _, _ in zip(*columns, strict=True)
        if schedule.chunks.weights[chunk]
    ]
    turns = [sorted({key for key, src, dst, _ in rows if rank in (src, dst)}) for rank in range(schedule.ranks)]
    result: dict[Message, set[int]] = defaultdict(set)
    for key, src, dst, chunk in rows:
        # The first group of every rank is the one that connects it with its peers.
        message = (src, dst, turns[src].index(key) + 2, turns[dst].index(key) + 2)
        result[message] |= set(range(bounds[chunk], bounds[chunk + 1]))
    return dict(result)


def logged(log: Path, schedule: Schedule, elements: int) -> dict[Message, set[int]]:
    """The same out of a log, which must be in the order of the groups at every destination."""
    result: dict[Message, set[int]] = defaultdict(set)
    last = [0] * schedule.ranks
    for line in log.read_text().splitlines():
        src, dst, size, src_group, dst_group = map(int, line.split()[:5])
        if src_group == 1:
            assert (size, dst_group) == (1, 1)
            continue
        buffer, offset = map(int, line.split()[5].split("+"))
        assert buffer in (0, 1), "neither the input nor the output, which are a rank's first two allocations"
        moved = set(range(offset // 4, (offset + size) // 4))
        assert not moved & result[src, dst, src_group, dst_group]
        result[src, dst, src_group, dst_group] |= moved
        assert dst_group >= last[dst]
        last[dst] = dst_group
    return dict(result)


def test_boundaries_are_exact_beyond_32_bits(tmp_path: Path) -> None:
    write_project(plan("ring", 3, 0), tmp_path)
    (tmp_path / "harness.cc").write_text(
        """#include "allreduce.cu"
#include <cinttypes>
int main() {
  uint64_t part, total, count;
  while (scanf("%" SCNu64 " %" SCNu64 " %" SCNu64, &part, &total, &count) == 3)
    printf("%" PRIu64 "\\n", share(part, total, count));
}
"""
    )
    sources = ["harness.cc", "plan_table.cpp"]
    command = ["g++", "-std=c++17", "-O0", f"-I{shim_directory()}", "-I.", *sources, "-pthread", "-o", "harness"]
    subprocess.run(command, cwd=tmp_path, check=True)
    random = Random(1)
    cases = [(MAX_TOTAL, MAX_TOTAL, 2**50), (1, MAX_TOTAL, 2**50), (MAX_TOTAL - 1, MAX_TOTAL, 2**50 + 12345)]
    for _ in range(200):
        total = random.randrange(1, MAX_TOTAL + 1)
        cases.append((random.randrange(total + 1), total, random.randrange(2 ** random.randrange(1, 51))))
    text = "".join(f"{part} {total} {count}\n" for part, total, count in cases)
    done = subprocess.run(["./harness"], cwd=tmp_path, input=text, capture_output=True, text=True, check=True)
    assert list(map(int, done.stdout.split())) == [part * count // total for part, total, count in cases]


def changed(table: Table, rank: int, number: int, change: dict[str, object] | None) -> Table:
    """The table with one step of one rank's `number`-th receive changed; None: left out."""
    rounds = list(table.ranks[rank].rounds)
    at = [(i, j) for i, one in enumerate(rounds) for j, s in enumerate(one.moves) if s.kind == "receive"][number]
    moves = list(rounds[at[0]].moves)
    moves[at[1] : at[1] + 1] = [moves[at[1]]._replace(**change)] if change else []  # type: ignore[arg-type]
    rounds[at[0]] = rounds[at[0]]._replace(moves=tuple(moves))
    ranks = list(table.ranks)
    ranks[rank] = replace(ranks[rank], rounds=tuple(rounds))
    return replace(table, ranks=tuple(ranks))


def swapped_peers(table: Table) -> Table:
    """Rank 0 takes 1 for 2 and 2 for 1."""

    def other(step: Step) -> Step:
        return step._replace(peer={1: 2, 2: 1}.get(step.peer, step.peer))

    def turned(one: Round) -> Round:
        return one._replace(moves=tuple(map(other, one.moves)))

    first = table.ranks[0]
    return replace(
        table, ranks=(RankTable(tuple(map(turned, first.rounds)), first.slots, first.slot_weight, 0), *table.ranks[1:])
    )


@pytest.mark.parametrize("fault", ["dropped receive", "swapped peers", "wrong chunk", "wrong place"])
def test_injected_faults_end_the_program(fault: str, tmp_path: Path, objects: Path) -> None:
    ranks = 4
    schedule = plan("circulant", ranks, ranks - 1, 6)
    table = lower(schedule)
    if fault == "dropped receive":
        bad = changed(table, 1, 3, None)
    elif fault == "swapped peers":
        bad = swapped_peers(table)
    elif fault == "wrong chunk":
        step = next(s for r in table.ranks[1].rounds for s in r.moves if s.kind == "receive")
        bad = changed(table, 1, 0, {"chunk": (step.chunk + 1) % 6})
    else:
        bad = changed(table, 1, 0, {"dst": Spot(OUTPUT)})
    write_project(schedule, tmp_path)
    (tmp_path / "plan_table.cpp").write_text(table_source(bad, "latecomer_plan", "plan", fault))
    bench = build(tmp_path, what="benchmark", cache=objects)
    done = run(bench, ranks, "--check", "--check-count", "1000", LC_SHIM_TIMEOUT_S="2")
    assert done.returncode in (1, 3), done.stdout
    if done.returncode == 3:
        first = done.stderr.splitlines()[0]
        assert "deadlock: nothing has moved for 2.0 s" in first or "bytes to rank" in first, done.stderr
        assert "waits for rank" in done.stderr or "which receives" in done.stderr
    else:
        assert "expected" in done.stderr
        assert done.stdout.startswith("WRONG: ")


def test_dropped_receive_says_who_waits_for_whom(tmp_path: Path, objects: Path) -> None:
    schedule = plan("ring", 3, 0)
    table = lower(schedule)
    last = sum(s.kind == "receive" for r in table.ranks[1].rounds for s in r.moves) - 1
    bad = changed(table, 1, last, None)
    write_project(schedule, tmp_path)
    (tmp_path / "plan_table.cpp").write_text(table_source(bad, "latecomer_plan", "plan", "fault"))
    bench = build(tmp_path, what="benchmark", cache=objects)
    size = ("--min-bytes", "3000", "--max-bytes", "3000", "--only", "plan")
    done = run(bench, 3, *size, *ONE_CALL, LC_SHIM_TIMEOUT_S="3")
    assert done.returncode == 3
    assert "rank 0, group 5: waits for rank 1 to take 1000 bytes" in done.stderr


def test_processes_meet_by_the_variables_of_torchrun(tmp_path: Path, objects: Path) -> None:
    """One process a rank; the stand-in's ranks meet in shared memory, the benchmark's over TCP."""
    bench = program(tmp_path, objects, plan("circulant", 3, 1, 4), {"ring": plan("ring", 3, 1)})
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    report = tmp_path / "report.json"
    shape = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "LATECOMER_PORT": str(port)}
    size = (
        "--min-bytes",
        "40000",
        "--max-bytes",
        "80000",
        "--factor",
        "2",
        "--iterations",
        "3",
        "--delay-us",
        "300000",
    )
    processes = [
        subprocess.Popen(
            [bench, *size, "--json", str(report)],
            env=os.environ | shape | {"RANK": str(r), "LOCAL_RANK": str(r)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(3)
    ]
    ended = [p.communicate(timeout=60) for p in processes]
    assert [p.returncode for p in processes] == [0, 0, 0], ended
    assert [out.count("ok: 0 elements wrong") for out, _ in ended] == [1, 0, 0]
    read = json.loads(report.read_text())
    assert (read["ranks"], read["late_rank"], read["wrong_elements"]) == (3, 1, 0)
    assert [(row["algorithm"], row["bytes"]) for row in read["results"]] == [
        (name, size) for size in (40000, 80000) for name in ("plan", "ring", "ncclAllReduce")
    ]
    # Time counts from the late rank's arrival: its 300 ms are not in it.
    assert all(0 < row["min_us"] <= row["median_us"] <= row["max_us"] < 300000 for row in read["results"][:2])


def test_processes_meet_by_mpi(tmp_path: Path, objects: Path) -> None:
    if shutil.which("mpicxx") is None or shutil.which("mpirun") is None:
        pytest.skip("no MPI: threads and TCP are tested")
    parts = [subprocess.run(["mpicxx", f"--showme:{part}"], capture_output=True, text=True, check=False)
             for part in ("compile", "link")]  # fmt: skip
    if any(part.returncode for part in parts):
        pytest.skip("this mpicxx does not tell its flags: not Open MPI")
    flags = [flag for part in parts for flag in part.stdout.split()]
    bench = program(tmp_path, objects, plan("ring", 3, 1), None, "-DLATECOMER_MPI", *flags)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        ["mpirun", "--oversubscribe", "-n", "3", bench, "--check", "--check-count", "500"],
        capture_output=True, text=True, check=False, timeout=100, env=os.environ | root,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("ok: 0 elements wrong\n", 0), done.stderr


def test_gpu_check_script(tmp_path: Path, objects: Path) -> None:
    """The script that waits for a machine with GPUs, tried on the stand-in."""
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_check.sh"
    arguments = ["--cpu", "--quick", "--ranks", "3", "--late", "0", "--algorithms", "circulant", "--out", str(tmp_path)]
    variables = os.environ | {"PYTHON": sys.executable, "OBJECTS": str(objects)}
    done = subprocess.run([script, *arguments], capture_output=True, text=True, env=variables, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "gpu_check.json").read_text())
    assert (report["passed"], report["ranks"], report["times_mean_something"]) == (True, 3, False)
    assert report["plans"]["circulant"]["wrong_elements"] == 0
    without = subprocess.run([script, "--what"], capture_output=True, text=True, check=False, timeout=20)
    assert (without.returncode, "--algorithms" in without.stderr) == (2, True)


def test_usage(tmp_path: Path, objects: Path) -> None:
    bench = program(tmp_path, objects, plan("ring", 3, 0))
    for arguments, code, text in [
        (["--dtype", "float8"], 2, "no type is called float8"),
        (["--op", "avg", "--dtype", "int32"], 2, "avg is for floating types"),
        (["--late", "3"], 2, "--late must be a rank"),
        (["--nonsense"], 2, "--nonsense is not an option"),
    ]:
        done = run(bench, 3, *arguments)
        assert (done.returncode, text in done.stderr) == (code, True), done.stderr
    done = run(bench, 4)
    assert done.returncode == 3
    assert "the plan is for 3 ranks, there are 4" in done.stderr
    assert run(bench, 3, "--help").returncode == 0
    alone = subprocess.run([bench], capture_output=True, text=True, check=False, timeout=20)
    assert alone.returncode == 3
    assert "how many ranks?" in alone.stderr


def test_a_source_that_does_not_compile_is_reported(tmp_path: Path, objects: Path) -> None:
    write_project(plan("ring", 3, 0), tmp_path)
    (tmp_path / "plan_table.cpp").write_text("int x = ;")
    with pytest.raises(LatecomerError, match="plan_table"):
        build(tmp_path, cache=objects)
