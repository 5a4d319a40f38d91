from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from latecomer.schedules.check import check
from latecomer.schedules.schedule import Schedule

pytestmark = pytest.mark.smoke

Run = Callable[..., Result]

QUESTION = ("--topology", "switch:8@450GiB/s", "--late", "3", "--delay", "5ms", "--size", "1GiB")
PUBLISHED = (*QUESTION, "--algorithm", "stragglar")

FIELDS = {
    "algorithm", "ranks", "chunks", "rounds", "bound_rounds", "time_us", "bound_us", "bound_latency_us", "gap",
    "ring_time_us",
}  # fmt: skip


def test_the_published_figures(run: Run) -> None:
    found = json.loads(run("synth", *PUBLISHED, "--json").stdout)
    assert set(found) >= FIELDS
    assert found["ring_time_us"] == pytest.approx(3930, abs=5)
    assert found["time_us"] == pytest.approx(2884, abs=5)
    assert found["bound_us"] == pytest.approx(2222, abs=5)
    assert (found["ranks"], found["chunks"], found["rounds"], found["bound_rounds"]) == (8, 7, 9, 9)
    assert found["late_rank"] == 3


def test_what_a_person_reads(run: Run, golden: Callable[[str, str], None]) -> None:
    result = run("synth", *PUBLISHED, "-o", "plan.json")
    assert result.exit_code == 0
    assert result.stderr == ""
    golden("published.txt", result.stdout)
    assert "the same with -o plan.json keeps the schedule" in run("synth", *PUBLISHED).stdout


def test_the_file_is_the_schedule(run: Run, tmp_path: Path) -> None:
    result = run("synth", *PUBLISHED, "-o", "plan.json", "--json")
    assert json.loads(result.stdout)["output"] == "plan.json"
    text = (tmp_path / "plan.json").read_text(encoding="utf-8")
    schedule = Schedule.from_json(text)
    check(schedule)
    assert schedule.to_json() == text
    run("synth", *PUBLISHED, "-o", "again.json")
    assert (tmp_path / "again.json").read_text(encoding="utf-8") == text
    assert run("check", "plan.json").exit_code == 0
    simulated = json.loads(run("simulate", "plan.json", *QUESTION, "--json").stdout)
    assert schedule.certificate is not None
    assert simulated["time_us"] == pytest.approx(schedule.certificate.time_us)


def test_auto_is_no_slower_than_what_it_chose_from(run: Run) -> None:
    auto = json.loads(run("synth", *QUESTION, "--json").stdout)
    assert auto["time_us"] <= json.loads(run("synth", *PUBLISHED, "--json").stdout)["time_us"]
    assert auto["time_us"] <= auto["ring_time_us"]


def test_nobody_late(run: Run) -> None:
    result = run("synth", "--topology", "dgx-h100", "--size", "64MiB")
    assert result.exit_code == 0
    assert "all ranks arrive together" in result.stdout
    assert "after the last arrival" not in result.stdout


def test_chunks(run: Run) -> None:
    flags = (*QUESTION, "--algorithm", "ring", "--json")
    assert json.loads(run("synth", *flags, "--chunks", "16").stdout)["chunks"] == 16
    assert json.loads(run("synth", *flags, "--chunks", "auto").stdout)["chunks"] == 8


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--topology", "dgx-h10"], "did you mean dgx-h100?"),
        (["--topology", "."], ". is a directory"),
        (["--topology", "junk"], "junk is not a text file"),
        (["--topology", "cut.json"], "cut.json: not JSON, or cut off"),
        (["--topology", "dgx-v100", "--algorithm", "circulant"], "GPU 0 and GPU 5 have no link"),
        (["--late", "9"], "late rank 9 is out of range: ranks are 0 … 7"),
        (["--delay", "-5ms"], "time '-5ms' is negative"),
        (["--size", "0"], "size '0' must be a whole number of bytes"),
        (["--chunks", "0"], "'0' is neither auto nor a number of chunks"),
        (["--chunks", "many"], "'many' is neither auto nor a number of chunks"),
        (["--algorithm", "straggler"], "no algorithm is called 'straggler'; did you mean stragglar?"),
        (["--topology", "switch:7@450GB/s", "--algorithm", "stragglar"], "needs an even number of ranks, not 7"),
        (["-o", "nowhere/plan.json"], "cannot write nowhere/plan.json: No such file or directory"),
        (["-o", "."], "cannot write .: it is a directory"),
    ],
)
def test_bad_input(flags: list[str], message: str, refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"\x7fELF\xff\xfe\x00\x01")
    (tmp_path / "cut.json").write_text('{"format": "latecomer.topology/1", "ranks"')
    output = [] if "-o" in flags else ["-o", "plan.json"]
    assert message in refused("synth", *QUESTION, *flags, *output)
