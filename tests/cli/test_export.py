from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from latecomer.codegen import msccl_xml

pytestmark = pytest.mark.smoke

Run = Callable[..., Result]

QUESTION = ("--topology", "switch:4@450GiB/s", "--late", "1", "--delay", "5ms", "--algorithm", "stragglar")


@pytest.fixture
def plan(run: Run) -> str:
    """The published schedule for four ranks, planned for a size that its three chunks divide."""
    assert run("synth", *QUESTION, "--size", "768MiB", "-o", "plan.json").exit_code == 0
    return "plan.json"


@pytest.fixture
def program(run: Run, plan: str) -> str:
    assert run("export", plan, "--to", "msccl-executor", "-o", "plan.xml").exit_code == 0
    return "plan.xml"


def test_export(run: Run, plan: str, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    result = run("export", plan, "--to", "msccl-executor", "-o", "plan.xml")
    assert result.exit_code == 0
    assert result.stderr == ""
    golden("export.txt", result.stdout)
    text = (tmp_path / "plan.xml").read_text(encoding="utf-8")
    assert msccl_xml.read(text).ranks == 4
    assert run("export", plan, "--to", "msccl-executor").stdout == text


def test_flags(run: Run, plan: str) -> None:
    flags = ("--to", "msccl-executor", "--min-bytes", "1MiB", "--max-bytes", "64MiB")
    read = msccl_xml.read(run("export", plan, *flags, "--out-of-place").stdout)
    assert (read.min_bytes, read.max_bytes) == (2**20, 2**26)
    assert (read.in_place, read.out_of_place) == (False, True)


@pytest.mark.parametrize("to", ["msccl", "rccl", "portable"])
def test_other_targets(to: str, run: Run, plan: str) -> None:
    assert run("export", plan, "--to", to, "-o", "other.xml").exit_code == 0
    assert run("check", "other.xml", "--target", to).exit_code == 0


def test_a_message_larger_than_usual_is_served(run: Run) -> None:
    run("synth", *QUESTION, "--size", "3GiB", "-o", "plan.json")
    result = run("export", "plan.json", "--to", "msccl-executor")
    assert msccl_xml.read(result.stdout).max_bytes == 3 * 2**30


@pytest.mark.parametrize(
    ("size", "message"),
    [("1GiB", "1 GiB of float32 is not served: 268,435,456 elements are not a multiple of 3"), ("6", "6 B of float32")],
)
def test_a_size_that_no_runtime_serves(size: str, message: str, run: Run) -> None:
    run("synth", *QUESTION, "--size", size, "-o", "plan.json")
    result = run("export", "plan.json", "--to", "msccl-executor", "-o", "plan.xml")
    assert result.exit_code == 0
    assert result.stderr.startswith(f"warning: {message}")


def test_check_of_a_program(run: Run, program: str, golden: Callable[[str, str], None]) -> None:
    result = run("check", program, "--target", "msccl-executor", "--size", "768MiB")
    assert result.exit_code == 0
    golden("check.txt", result.stdout)
    found = json.loads(run("check", program, "--json").stdout)
    assert found["correct"] is True
    assert (found["kind"], found["ranks"], found["chunks"]) == ("program", 4, 3)


def test_show_of_a_program(run: Run, program: str, golden: Callable[[str, str], None]) -> None:
    golden("show.txt", run("show", program).stdout)


def test_check_says_no(run: Run, program: str, tmp_path: Path) -> None:
    text = (tmp_path / program).read_text()
    (tmp_path / "wrong.xml").write_text(re.sub(r'type="rrc?c?s?"', 'type="r"', text, count=1))
    result = run("check", "wrong.xml")
    assert result.exit_code == 1
    assert re.search(r"^wrong\.xml:\d+: gpu \d", result.stderr, re.MULTILINE)
    assert "error: wrong.xml is not correct: " in result.stderr
    found = run("check", "wrong.xml", "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["correct"] is False


@pytest.mark.parametrize("coll", ["custom", "send", "recv", "gather", "scatter", "alltoallv"])
def test_what_a_custom_collective_computes_is_not_judged(
    coll: str, run: Run, program: str, tmp_path: Path
) -> None:
    text = (tmp_path / program).read_text().replace('coll="allreduce"', f'coll="{coll}"')
    (tmp_path / "odd.xml").write_text(text)
    found = run("check", "odd.xml")
    assert found.exit_code == 0
    lines = [line for line in found.stdout.splitlines() if not line.startswith("odd.xml:")]
    assert lines[0].split(maxsplit=1) == ["proven", "well formed, no deadlock and no race, whatever the timing"]
    assert lines[1].startswith("not judged ")
    assert lines[1].endswith("the result: what a custom collective should compute the format does not say")
    assert not any(line.startswith("correct") or "on all ranks" in line for line in lines)
    assert json.loads(run("check", "odd.xml", "--json").stdout)["result_judged"] is False
    assert "result_judged" not in json.loads(run("check", program, "--json").stdout)


def test_one_of_a_kind_has_no_s(run: Run, plan: str) -> None:
    question = ("--topology", "switch:2@50GB/s", "--size", "1KiB", "--late", "1", "--delay", "1ms")
    made = run("synth", *question, "--algorithm", "direct", "--chunks", "1", "-o", "one.json")
    assert "direct, 1 chunk, 1 round after the last arrival" in made.stdout
    shown = run("show", "one.json").stdout
    assert "2 ranks, late rank 1, 1 chunk, " in shown
    assert "completion: 1 round, 2 transfers" in shown
    assert "direct, 1 chunk, 2 messages" in run("simulate", "one.json", *question).stdout
    said = run("export", "one.json", "--to", "msccl", "-o", "one.xml").stdout
    assert "at most 2 threadblocks on one, 1 channel, at most 2 steps in a threadblock, 1 of 1 chunk of scratch" in said
    assert "2 ranks, 1 chunk, 1 channel, Simple" in run("show", "one.xml").stdout


def test_a_program_is_no_schedule(refused: Callable[..., str], program: str) -> None:
    message = "plan.xml is a program; `latecomer export` takes a schedule, the JSON of `latecomer synth -o`"
    assert message in refused("export", program, "--to", "msccl-executor", "-o", "again.xml")
    flags = ("--topology", "dgx-h100", "--size", "1GiB")
    assert "`latecomer simulate` takes a schedule" in refused("simulate", program, *flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--to", "mscll"], "no target is called 'mscll'; there are msccl"),
        ([], "Missing option '--to'"),
        (["--to", "msccl-executor", "--max-bytes", "0"], "'--max-bytes': size '0'"),
        (["--to", "msccl-executor", "--min-bytes", "2GiB", "--max-bytes", "1GiB"],
         "--min-bytes 2 GiB is above --max-bytes 1 GiB: no message is served"),
        (["--to", "msccl", "--min-bytes", "1048577", "--max-bytes", "1MiB"],
         "--min-bytes 1 MiB (1048577 bytes) is above --max-bytes 1 MiB: no message is served"),
        (["--to", "msccl", "--min-bytes", "2GiB"],
         "--min-bytes 2 GiB is above --max-bytes 1 GiB, which holds without one: no message is served"),
        (["--to", "msccl-executor", "-o", "nowhere/plan.xml"], "cannot write nowhere/plan.xml"),
        (["--to", "msccl-executor", "-o", "."], "cannot write .: it is a directory"),
    ],
)
def test_bad_flags(flags: list[str], message: str, refused: Callable[..., str], plan: str) -> None:
    output = [] if "-o" in flags else ["-o", "out.xml"]
    assert message in refused("export", plan, *flags, *output)


def test_a_limit_is_named_and_nothing_written(run: Run, refused: Callable[..., str]) -> None:
    run(
        "synth", "--topology", "dgx-h100", "--size", "1GiB", "--algorithm", "ring", "--chunks", "2048", "-o", "big.json"
    )
    assert "(limit: channels)" in refused("export", "big.json", "--to", "msccl-executor", "-o", "big.xml")


def test_flags_of_the_other_kind(refused: Callable[..., str], ring_file: str) -> None:
    assert "--shrink and --sarif are for a program" in refused("check", ring_file, "--target", "msccl")


def test_an_incorrect_schedule_is_not_exported(run: Run, plan: str, tmp_path: Path) -> None:
    from latecomer.schedules.schedule import Schedule

    right = Schedule.from_json((tmp_path / plan).read_text(encoding="utf-8"))
    wrong = right.model_copy(update={"transfers": right.transfers.where(right.transfers.round > 0), "patterns": ()})
    (tmp_path / "wrong.json").write_text(wrong.to_json(), encoding="utf-8")
    result = run("export", "wrong.json", "--to", "msccl-executor", "-o", "wrong.xml")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert not (tmp_path / "wrong.xml").exists()
