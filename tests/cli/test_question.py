"""The flags that bounds, simulate and synth share, through `bounds` and `simulate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]

QUESTION = ("--topology", "switch:8@450GiB/s", "--late", "3", "--delay", "5ms", "--size", "1GiB")


def test_bounds(run: Run, golden: Callable[[str, str], None]) -> None:
    result = run("bounds", *QUESTION)
    assert result.exit_code == 0
    golden("bounds.txt", result.stdout)


def test_bounds_json(run: Run) -> None:
    result = run("bounds", *QUESTION, "--json")
    found = json.loads(result.stdout)
    assert found["bound_us"] == pytest.approx(2222.2, abs=0.1)
    assert found["bound_latency_us"] == 9.0
    assert found["ranks"] == 8


@pytest.mark.parametrize(
    ("flags", "understood"),
    [
        ([], "all ranks arrive together; 4 KiB per GPU"),
        (["--late", "0", "--delay", "3ms"], "rank 0 arrives 3 ms after the others"),
        (["--late", "0", "--delay", "0"], "all ranks arrive together"),
        (["--arrivals", "0,0,5ms,0"], "rank 2 arrives 5 ms after the others"),
        (["--arrivals", "0,1ms,5ms,0"], "ranks arrive over 5 ms, the last is rank 2"),
        (["--arrivals", "times.csv"], "rank 1 arrives 7 µs after the others"),
        (["--alpha", "1us", "--arrivals", "times.csv"], "α 1 µs"),
    ],
)
def test_what_was_understood(flags: list[str], understood: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("0,7,0,0\n")
    result = run("bounds", "--topology", "switch:4@50GB/s", "--size", "4096", *flags)
    assert result.exit_code == 0
    assert understood in result.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--late", "9", "--delay", "5ms"], "late rank 9 is out of range: ranks are 0 … 7"),
        (["--late", "-1", "--delay", "5ms"], "late rank -1 is out of range: ranks are 0 … 7"),
        (["--late", "9"], "late rank 9 is out of range"),
        (["--late", "x", "--delay", "5ms"], "'--late': 'x' is not a valid integer"),
        (["--late", "3", "--delay", "-5ms"], "'--delay': time '-5ms' is negative; times start at 0"),
        (["--late", "3", "--delay", "5 parsec"], "'--delay': time '5 parsec' has the unknown unit 'parsec'"),
        (["--late", "3"], "rank 3 is late, but by how much? Add --delay 5ms"),
        (["--delay", "5ms"], "a delay of 5 ms but no late rank; say which with --late RANK"),
        (["--arrivals", "0,0,5ms"], "3 arrival times, but 8 ranks"),
        (
            ["--arrivals", "0,0,5ms", "--late", "3"],
            "--arrivals says who is late; leave out --late and --delay",
        ),
        (["--arrivals", "nowhere.csv"], "'nowhere.csv' is neither a file nor a list of times"),
        (["--arrivals", "."], ". is a directory"),
        (["--arrivals", "junk"], "junk is not a text file"),
        (["--arrivals", "cut.json"], "cut.json: not JSON, or cut off"),
        (["--size", "0"], "'--size': size '0' must be a whole number of bytes, at least 1"),
        (["--size", "-1GiB"], "'--size': size '-1GiB' must be a whole number of bytes"),
        (["--size", "big"], "'--size': size 'big' is not a number with a unit"),
        (["--round-latency", "-1us"], "'--round-latency': time '-1us' is negative"),
        (["--topology", "dgx-h10"], "did you mean dgx-h100?"),
        (["--topology", "-", "--arrivals", "-"], "cannot both be read from standard input"),
        (["--topology", "switch:1@5GB/s"], "a topology needs at least 2 GPUs"),
        (["--topology", "switch:8@50GB/s,exclusiv"],
         "'exclusiv' is not an option of a switch; after the rate may come a latency (3us), and shared or exclusive. "
         "Did you mean exclusive?"),
        (["--topology", "switch:8@50GB/s,3us,ports"], "(3us), and shared or exclusive.\n"),
        (["--topology", "switch:8@50GB/s,3xs"], "unknown unit 'xs'"),
    ],
)
def test_bad_question(flags: list[str], message: str, refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(bytes(range(256)))
    (tmp_path / "cut.json").write_text("[0, 0, 5")
    assert message in refused("bounds", "--topology", "dgx-h100", "--size", "1GiB", *flags)


def test_simulate(run: Run, ring_file: str, golden: Callable[[str, str], None]) -> None:
    result = run("simulate", ring_file, "--topology", "switch:4@100GB/s", "--size", "1MB")
    assert result.exit_code == 0
    golden("simulate.txt", result.stdout)


def test_simulate_json(run: Run, ring_file: str) -> None:
    flags = ("--topology", "switch:4@100GB/s", "--size", "1MB", "--late", "1", "--delay", "20us", "--json")
    found = json.loads(run("simulate", ring_file, *flags).stdout)
    assert found["time_us"] == pytest.approx(6 * (3 + 2.5))
    assert found["rounds"] == 6
    assert found["arrivals_us"] == [0, 20, 0, 0]
    assert len(found["messages"]) == 24
    assert found["gap"] == pytest.approx(found["time_us"] / found["bound_us"] - 1)
    assert {"round", "src", "dst", "start_us", "end_us", "waited_for"} == set(found["messages"][0])
    assert len(found["finish_us"]) == len(found["wait_us"]) == 4


def test_simulate_refuses_what_does_not_fit(refused: Callable[..., str], ring_file: str, tmp_path: Path) -> None:
    flags = ("--topology", "dgx-h100", "--size", "1MB")
    assert "the schedule is for 4 ranks, the topology has 8" in refused("simulate", ring_file, *flags)
    assert "no such file: nowhere.json" in refused("simulate", "nowhere.json", *flags)
    (tmp_path / "cut.json").write_text((tmp_path / ring_file).read_text()[:300])
    assert "cut.json: not JSON, or cut off" in refused("simulate", "cut.json", *flags)
