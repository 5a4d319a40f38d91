"""Files of measurements, the fit of the model, and checks of data: what needs no process group."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from latecomer.runtime.bench_files import COLUMNS, read_rows, to_csv, write_rows
from latecomer.runtime.calibrate import features, fit
from latecomer.runtime.data import WrongResult, compare, contribution, reference
from latecomer.schedules.errors import InputError
from tests.runtime.cases import schedule


def row(name: str, size: int, round_us: float, message_us: float, rate_gbs: float) -> dict[str, Any]:
    """A measurement that follows the model exactly."""
    built = schedule(name, 8, 7)
    assert built is not None
    counts = features(built)
    time = counts.rounds * round_us + counts.messages * message_us + counts.volume * size / (rate_gbs * 1e3)
    return {"algorithm": name, "ranks": 8, "size_bytes": size, "time_us": time, **dataclasses.asdict(counts)}


def rows(*names: str) -> list[dict[str, Any]]:
    return [row(name, size, 700.0, 90.0, 0.0245) for name in names for size in (2**16, 2**20, 2**24)]


def test_features_are_the_closed_forms() -> None:
    ring, pairs = schedule("ring", 8, 7), schedule("all_pairs_sync", 8, 7)
    assert ring is not None
    assert pairs is not None
    assert dataclasses.astuple(features(ring)) == (14, 14, pytest.approx(1.75))
    assert dataclasses.astuple(features(pairs)) == (2, 14, pytest.approx(1.75))


def test_the_fit_finds_the_numbers_it_was_made_with() -> None:
    found = fit(rows("ring", "all_pairs_sync"))
    assert found.round_latency_us == pytest.approx(700.0, rel=1e-6)
    assert found.message_latency_us == pytest.approx(90.0, rel=1e-6)
    assert found.rate_gbs == pytest.approx(0.0245, rel=1e-6)
    assert found.largest_error < 1e-9
    assert found.told_apart


def test_one_message_a_round_tells_only_their_sum() -> None:
    found = fit(rows("ring"))
    assert not found.told_apart
    assert found.message_latency_us == pytest.approx(790.0, rel=1e-6)
    assert found.round_latency_us == 0.0


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_calibrate_reads_what_bench_writes(tmp_path: Path, suffix: str) -> None:
    from latecomer.cli import cli

    path = tmp_path / f"bench.{suffix}"
    write_rows(str(path), rows("ring", "all_pairs_sync"))
    said = CliRunner().invoke(cli, ["calibrate", str(path)])
    assert said.exit_code == 0, said.output
    assert "--topology switch:8@0.0245GB/s,90us --round-latency 700us" in said.stdout
    found = json.loads(CliRunner().invoke(cli, ["calibrate", str(path), "--json"]).stdout)
    assert found["rate_gbs"] == pytest.approx(0.0245)
    assert found["flags"] == "--topology switch:8@0.0245GB/s,90us --round-latency 700us"


def test_calibrate_ends_with_a_command_that_uses_its_numbers(tmp_path: Path) -> None:
    from latecomer.cli import cli

    path = tmp_path / "bench.json"
    write_rows(str(path), rows("ring", "all_pairs_sync"))
    said = CliRunner().invoke(cli, ["calibrate", str(path)]).stdout.splitlines()
    next_ = next(line for line in said if line.startswith("next"))
    name, _, command = next_.partition(" latecomer ")
    assert name.strip() == "next"
    assert "--late 7 --delay 50ms --size 16MiB" in command
    assert CliRunner().invoke(cli, command.split()).exit_code == 0
    assert "synth takes the same flags" in said[-1]

    write_rows(str(path), [{**row, "ranks": 4 + i} for i, row in enumerate(rows("ring", "all_pairs_sync"))])
    said = CliRunner().invoke(cli, ["calibrate", str(path)]).stdout.splitlines()
    assert "switch:N@" in said[-2]
    assert "N: your number of ranks" in said[-1]


BAD_FILES = {
    "rows.json": '{"rows": 5}',
    "numbers.json": '{"rows": [1, 2]}',
    "list.json": "[1]",
    "deep.json": "[" * 100_000,
    "digits.json": '{"rows": [{"rounds": ' + "9" * 5000 + "}]}",
    "wide.csv": 'a\n"' + "y" * 200_000,
    "empty.csv": "",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_is_no_measurements_is_an_error_of_one_line(name: str, tmp_path: Path) -> None:
    from latecomer.cli import cli

    path = tmp_path / name
    path.write_text(BAD_FILES[name])
    said = CliRunner().invoke(cli, ["calibrate", str(path)])
    assert said.exit_code == 2, said.exception
    assert said.stderr.startswith("error: ")
    assert len(said.stderr.splitlines()) == 1


@pytest.mark.parametrize("field", ["rounds", "messages", "volume", "size_bytes", "time_us"])
@pytest.mark.parametrize("value", ["nan", "inf", 0, -1, "fast", [1]])
def test_a_value_that_is_no_measurement(field: str, value: Any) -> None:
    with pytest.raises(InputError, match="a measurement has"):
        fit([{**rows("ring")[0], field: value}, *rows("ring")])


def test_measurements_that_no_network_makes() -> None:
    with pytest.raises(InputError, match=r"which no network has; size_bytes must be in bytes and time_us in µs"):
        fit([{**row, "time_us": row["time_us"] * 1e-20} for row in rows("ring")])


GARBAGE = {
    "--algorithm": ["ring:", "ring:x", "ring:0", "ring:" + "9" * 5000, "rnig", "", "backend:4"],
    "--size": ["x", "0", "1MiB,", "1e999"],
    "--delay": ["x", "-1ms", ""],
    "--late": ["x", "-1", "1.5"],
    "--seed": ["x", "-1", "1.5", "1,", "9" * 5000, "²"],
    "--runs": ["0", "x", "1.5"],
    "--round-latency": ["x", "-1"],
    "--timeout": ["x", "0", "-1", "nan", "inf", "1e300"],
    "-o": ["bench.txt", ""],
    "--dtype": ["float7"],
    "--transport": ["pigeon"],
}
OF_RUN = ("--size", "--delay", "--late", "--runs", "--timeout", "--dtype", "--transport")


@pytest.mark.parametrize("option", GARBAGE)
def test_garbage_ends_in_an_error_that_names_the_option(option: str) -> None:
    from latecomer.cli import cli
    from latecomer.run import command

    for value in GARBAGE[option]:
        if option not in ("--dtype", "--transport"):
            said = CliRunner().invoke(cli, ["bench", option, value])
            assert (said.exit_code, isinstance(said.exception, SystemExit)) == (2, True), (value, said.exception)
            assert f"'{option}'" in said.stderr.splitlines()[0], value
        if option in OF_RUN:
            said = CliRunner().invoke(command, ["plan.json", option, value])
            assert (said.exit_code, isinstance(said.exception, SystemExit)) == (2, True), (value, said.exception)
            assert f"'{option}'" in said.stderr.splitlines()[-1], value


def test_what_cannot_be_fitted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="fewer than two measurements"):
        fit([{"algorithm": "backend", "size_bytes": 10, "time_us": 5.0}])
    with pytest.raises(InputError, match="not a number"):
        fit([{**rows("ring")[0], "time_us": "fast"}])
    with pytest.raises(InputError, match=r"written as \.csv or \.json"):
        write_rows(str(tmp_path / "bench.txt"), [])
    with pytest.raises(InputError, match="cannot read"):
        read_rows(str(tmp_path / "nothing.csv"))
    assert to_csv([]) == ",".join(COLUMNS) + "\n"


def test_bench_and_run_say_how_they_are_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from latecomer.cli import cli
    from latecomer.run import command

    monkeypatch.delenv("RANK", raising=False)
    said = CliRunner().invoke(cli, ["bench"])
    assert said.exit_code == 2
    assert "start this under torchrun" in said.stderr
    said = CliRunner().invoke(command, [str(tmp_path / "plan.json")])
    assert said.exit_code == 2
    assert "start this under torchrun" in said.stderr
    assert "seed 'x' is not a whole number" in CliRunner().invoke(cli, ["bench", "--seed", "x"]).stderr
    assert "no algorithm is called 'rnig'" in CliRunner().invoke(cli, ["bench", "--algorithm", "rnig"]).stderr


def test_one_wrong_element_is_found() -> None:
    parts = [contribution(1000, 3, rank) for rank in range(4)]
    wanted = reference(1000, 3, 4)
    result = np.sum(parts, axis=0, dtype=np.float32)
    compare(result, wanted, 4, "float32")
    result[17] += 1 / 128
    with pytest.raises(WrongResult, match=r"element 17 is .* 1 of 1000 are wrong"):
        compare(result, wanted, 4, "float32")
    result[17] = np.nan
    with pytest.raises(WrongResult, match="element 17 is nan"):
        compare(result, wanted, 4, "bfloat16")
