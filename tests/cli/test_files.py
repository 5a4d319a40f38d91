"""FILE arguments: `check` and `show` on schedules and programs, and on what is neither."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from latecomer.schedules.schedule import Schedule
from latecomer.schedules.topology import Topology
from latecomer.schedules.transfers import Transfers
from latecomer.synth.algorithms import ring

Run = Callable[..., Result]


@pytest.fixture
def wrong_file(tmp_path: Path) -> str:
    """A ring whose last round is missing."""
    right = ring.schedule(4)
    moves: Transfers = right.transfers
    wrong = right.model_copy(update={"transfers": moves.where(moves.round < moves.rounds - 1), "patterns": ()})
    (tmp_path / "wrong.json").write_text(wrong.to_json(), encoding="utf-8")
    return "wrong.json"


def test_check(run: Run, ring_file: str, golden: Callable[[str, str], None]) -> None:
    result = run("check", ring_file)
    assert result.exit_code == 0
    golden("check.txt", result.stdout)
    found = json.loads(run("check", ring_file, "--json").stdout)
    assert found["correct"] is True
    assert (found["kind"], found["ranks"], found["chunks"], found["rounds"]) == ("schedule", 4, 4, 6)


def test_check_from_stdin(run: Run, ring_file: str, tmp_path: Path) -> None:
    assert run("check", "-", stdin=(tmp_path / ring_file).read_text()).exit_code == 0


def test_check_says_no(run: Run, wrong_file: str) -> None:
    result = run("check", wrong_file)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: wrong.json: rank 0, chunk ")
    assert "is missing" in result.stderr
    result = run("check", wrong_file, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["correct"] is False


def test_simulate_proves_first(run: Run, wrong_file: str) -> None:
    result = run("simulate", wrong_file, "--topology", "switch:4@50GB/s", "--size", "1MB")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: wrong.json: rank 0, chunk ")


@pytest.mark.parametrize("to", ["msccl", "nccl"])
def test_export_names_the_file_that_is_wrong(run: Run, wrong_file: str, tmp_path: Path, to: str) -> None:
    result = run("export", wrong_file, "--to", to, "-o", "out")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: wrong.json: rank 0, chunk ")
    (tmp_path / "plans").mkdir()
    (tmp_path / wrong_file).rename(tmp_path / "plans" / "0001-1024-ring.json")
    if to != "nccl":
        result = run("export", "plans", "--to", to, "-o", "out")
        assert result.stderr.startswith("error: plans/0001-1024-ring.json: rank 0, chunk ")


def test_standard_input_has_a_name_too(run: Run, wrong_file: str, tmp_path: Path) -> None:
    result = run("check", "-", stdin=(tmp_path / wrong_file).read_text())
    assert result.stderr.startswith("error: standard input: rank 0, chunk ")


def test_show(run: Run, ring_file: str, tmp_path: Path) -> None:
    result = run("show", ring_file)
    assert result.exit_code == 0
    assert result.stdout.rstrip() == str(ring.schedule(4)).rstrip()
    assert run("show", ring_file, "-o", "table.txt").stdout == "wrote table.txt\n"
    assert (tmp_path / "table.txt").read_text(encoding="utf-8") == result.stdout


BAD_FILES = [
    (".", b"", ". is a directory; name a file in it"),
    ("nowhere.json", None, "no such file: nowhere.json"),
    ("empty", b"", "empty is empty"),
    ("junk", bytes(range(256)), "junk is not a text file"),
    ("cut.json", ring.schedule(4).to_json()[:400].encode(), "cut.json: not JSON, or cut off"),
    ("list.json", b"[1, 2]", "list.json: not a latecomer schedule"),
    ("topo.json", b'{"format": "latecomer.topology/1"}', 'not a latecomer schedule: "format" should be'),
    ("text", b"hello\n", "text is neither a schedule (JSON, from `latecomer synth -o`) nor an MSCCL program (XML)"),
    ("page.xml", b"<html><body/></html>\n", "page.xml:1: not an MSCCL program"),
    ("system.xml", b'<system version="1">\n<cpu numaid="0"/>\n</system>\n', "system.xml:1: not an MSCCL program"),
    ("cut.xml", b'<algo name="x" nchunksperloop="4">\n<gpu id="0"', "cut.xml:2: "),
]


@pytest.mark.parametrize("command", ["check", "show", "simulate", "export"])
@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES, ids=[name for name, _, _ in BAD_FILES])
def test_bad_files(
    command: str, name: str, content: bytes | None, message: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    if content is not None and name != ".":
        (tmp_path / name).write_bytes(content)
    flags = {
        "simulate": ["--topology", "dgx-h100", "--size", "1GiB"],
        "export": ["--to", "msccl-executor", "-o", "out.xml"],
    }
    if (command, name) == ("export", "."):  # a directory may hold a plan set
        message = ". holds no plans; make them with latecomer synth --sizes"
    assert message in refused(command, name, *flags.get(command, []))


def test_a_schedule_with_a_wrong_field(refused: Callable[..., str], tmp_path: Path) -> None:
    text = ring.schedule(4).to_json().replace('"ranks": 4', '"ranks": "many"')
    (tmp_path / "odd.json").write_text(text)
    (tmp_path / "topo.json").write_text(Topology.switch(4, 50.0).to_json().replace('"ranks": 4', '"ranks": "many"'))
    (tmp_path / "times.json").write_text('{"format": "latecomer.arrivals/1", "samples": [0, "x"]}')
    said = 'ranks: should be a whole number, not "many"\n'
    assert refused("check", "odd.json") == f"error: odd.json: {said}"
    assert refused("topology", "topo.json") == f"error: topo.json: {said}"
    question = ("--topology", "switch:2@50GB/s", "--size", "1MiB")
    assert "error: times.json: time 'x' is not a number" in refused("bounds", *question, "--arrivals", "times.json")
    assert Schedule.from_json(ring.schedule(4).to_json()).ranks == 4


def test_standard_output_as_the_file(run: Run, tmp_path: Path, refused: Callable[..., str]) -> None:
    question = ("--topology", "switch:4@50GB/s", "--late", "3", "--delay", "1ms", "--size", "1MiB")
    made = run("synth", *question, "-o", "-")
    assert made.exit_code == 0
    assert Schedule.from_json(made.stdout, "made").ranks == 4
    assert made.stderr.startswith("understood")
    program = run("export", "-", "--to", "msccl", "-o", "-", stdin=made.stdout)
    assert program.stdout.startswith("<algo ")
    assert run("show", "-", "-o", "-", stdin=made.stdout).stdout == run("show", "-", stdin=made.stdout).stdout
    assert not list(tmp_path.iterdir())
    assert "leave out --json" in refused("synth", *question, "-o", "-", "--json")
    for command in (("synth", *question), ("show", "x"), ("export", "x", "--to", "msccl")):
        assert "the name is empty" in refused(*command, "-o", "")


def test_a_file_is_never_its_own_export(run: Run, ring_file: str, tmp_path: Path, refused: Callable[..., str]) -> None:
    before = (tmp_path / ring_file).read_text()
    assert "is the file that is read" in refused("export", ring_file, "--to", "msccl", "-o", f"./{ring_file}")
    assert (tmp_path / ring_file).read_text() == before
