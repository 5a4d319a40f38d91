"""lint, check --target and --shrink, export of sizes and of plan sets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from .conftest import Run


def test_lint_says_yes_or_why_not(run: Run, ring_file: str) -> None:
    assert run("export", ring_file, "--to", "rccl", "-o", "a.xml").exit_code == 0
    yes = run("lint", "a.xml", "--target", "rccl", "--size", "1MiB", "--ngpus", "4")
    assert yes.exit_code == 0
    assert "yes, rccl runs it" in yes.stdout
    no = run("lint", "a.xml", "--target", "rccl", "--size", "1MiB", "--ngpus", "8")
    assert no.exit_code == 1
    assert "L01: the file is for 4 ranks, the call has 8" in no.stdout
    as_json = json.loads(run("lint", "a.xml", "--target", "rccl", "--size", "2GiB", "--ngpus", "4", "--json").stdout)
    assert as_json["picked"] is False
    assert [f["code"] for f in as_json["files"][0]["findings"]] == ["L04"]


def test_lint_fixes_what_is_mechanical(run: Run, ring_file: str, tmp_path: Path) -> None:
    run("export", ring_file, "--to", "msccl-executor", "-o", "a.xml")
    good = (tmp_path / "a.xml").read_text()
    (tmp_path / "b.xml").write_text(good.replace(' minBytes="0"', ""))
    call = ("--target", "msccl-executor", "--size", "1MiB", "--ngpus", "4")
    assert "A08" in run("lint", "b.xml", *call).stdout
    fixed = run("lint", "b.xml", *call, "--fix", "c.xml")
    assert fixed.exit_code == 0
    assert "repaired b.xml:1: error A08" in fixed.stdout
    assert (tmp_path / "c.xml").read_text() == good


def test_findings_as_sarif(run: Run, ring_file: str, tmp_path: Path) -> None:
    run("export", ring_file, "--to", "msccl-executor", "-o", "a b.xml")
    bad = (tmp_path / "a b.xml").read_text().replace('type="s"', 'type="ra"', 1)
    (tmp_path / "a b.xml").write_text(bad)
    assert run("check", "a b.xml", "--sarif", "check.sarif").exit_code == 1
    log = json.loads((tmp_path / "check.sarif").read_text())
    assert log["version"] == "2.1.0"
    only = log["runs"][0]
    result = only["results"][0]
    assert only["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "S03"
    assert result["level"] == "error"
    place = result["locations"][0]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "a%20b.xml"
    assert bad.splitlines()[place["physicalLocation"]["region"]["startLine"] - 1].count('type="ra"') == 1
    assert place["logicalLocations"][0]["fullyQualifiedName"].startswith("gpu 0/tb ")
    call = ("--target", "msccl-executor", "--size", "1MiB", "--ngpus", "4")
    assert run("lint", "a b.xml", *call, "--sarif", "lint.sarif").exit_code == 1
    assert json.loads((tmp_path / "lint.sarif").read_text())["runs"][0]["results"]


def test_check_says_when_a_size_is_not_served(run: Run, ring_file: str, refused: Callable[..., str]) -> None:
    run("export", ring_file, "--to", "msccl-executor", "-o", "a.xml")
    served = run("check", "a.xml", "--target", "msccl-executor", "--size", "1MiB")
    assert "size served       yes" in served.stdout
    not_served = run("check", "a.xml", "--target", "msccl-executor", "--size", "20")
    assert not_served.exit_code == 0  # the program is correct all the same
    assert "size served       no" in not_served.stdout
    assert "5 elements are not a multiple of nchunksperloop=" in not_served.stdout
    facts = json.loads(run("check", "a.xml", "--size", "2GiB", "--json").stdout)
    assert facts["size_served"] is False
    assert "above maxBytes" in facts["size_note"]
    assert "is a schedule" in refused("check", ring_file, "--sarif", "x.sarif")


def test_lint_refuses_what_it_cannot_read(run: Run, refused: Callable[..., str]) -> None:
    call = ("--target", "rccl", "--size", "1MiB", "--ngpus", "4")
    assert "cannot read missing.xml" in refused("lint", "missing.xml", *call)
    assert "there are msccl" in refused("lint", "x.xml", "--target", "nccl3", "--size", "1MiB", "--ngpus", "4")


def test_check_shrinks_a_failing_program(run: Run, ring_file: str, tmp_path: Path) -> None:
    run("export", ring_file, "--to", "msccl-executor", "-o", "a.xml")
    lines = (tmp_path / "a.xml").read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if 'type="rrcs"' in line)
    lines[first] = lines[first].replace('dstoff="', 'dstoff="1')
    (tmp_path / "b.xml").write_text("\n".join(lines))
    result = run("check", "b.xml", "--shrink", "small.xml")
    assert result.exit_code == 1
    assert "wrote small.xml: S07" in result.stderr
    again = run("check", "small.xml")
    assert again.exit_code == 1
    assert "S07" in again.stderr
    assert len((tmp_path / "small.xml").read_text()) < len("\n".join(lines)) / 2


def test_export_for_sizes_and_of_a_plan_set(run: Run, refused: Callable[..., str], tmp_path: Path) -> None:
    question = ("--topology", "switch:4@450GB/s", "--late", "3", "--delay", "5ms")
    run("synth", *question, "--size", "1GiB", "--algorithm", "stragglar", "-o", "plan.json")
    assert "multiple of 3" in run("export", "plan.json", "--to", "msccl", "-o", "a.xml").stdout
    cut = run("export", "plan.json", "--to", "msccl", "--for-sizes", "1MiB..1GiB", "-o", "a.xml")
    assert "1 MiB … 1 GiB" in cut.stdout
    assert run("lint", "a.xml", "--target", "msccl", "--size", "1GiB", "--ngpus", "4").exit_code == 0
    assert run("synth", *question, "--sizes", "1KiB..16MiB", "-o", "plans").exit_code == 0
    made = run("export", "plans", "--to", "msccl-executor", "-o", "xmls")
    assert made.exit_code == 0, made.stderr
    names = sorted(p.name for p in (tmp_path / "xmls").iterdir())
    assert len(names) == len(list((tmp_path / "plans").iterdir()))
    assert all(name.endswith(".xml") for name in names)
    assert "not an empty directory" in refused("export", "plans", "--to", "msccl-executor", "-o", "xmls")
    assert "name it with -o DIR" in refused("export", "plans", "--to", "msccl-executor")


def test_lint_of_a_directory_is_one_answer(run: Run, tmp_path: Path, refused: Callable[..., str]) -> None:
    question = ("--topology", "switch:4@50GB/s", "--late", "3", "--delay", "5ms")
    assert run("synth", *question, "--sizes", "1KiB..256MiB", "-o", "plans").exit_code == 0
    assert "is not empty" in refused("synth", *question, "--sizes", "1KiB..1MiB", "-o", "plans")
    assert run("export", "plans", "--to", "rccl", "-o", "files").exit_code == 0
    names = sorted(path.name for path in (tmp_path / "files").iterdir())
    assert len(names) > 1
    call = ("--target", "rccl", "--ngpus", "4")
    served = run("lint", "files", *call, "--size", "12KiB")
    assert served.exit_code == 0, served.stdout
    assert "files   yes, rccl runs files/" in served.stdout
    assert served.stdout.count("does not run it for this call") == len(names) - 1
    too_large = run("lint", "files", *call, "--size", "1GiB")
    assert too_large.exit_code == 1
    assert "files   no, rccl runs none of it for this call" in too_large.stdout
    # Plans of two sets, as if copied together.
    first = sorted((tmp_path / "plans").iterdir())[0]
    (tmp_path / "plans" / "0000000000512-0000000004096-ring.json").write_text(first.read_text())
    assert "plans of several sets" in refused("export", "plans", "--to", "rccl", "-o", "more")


def test_lint_of_two_files_for_one_call(run: Run, ring_file: str, tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "both").mkdir()
    for name in ("a.xml", "b.xml"):
        assert run("export", ring_file, "--to", "rccl", "-o", f"both/{name}").exit_code == 0
    call = ("--target", "rccl", "--ngpus", "4", "--size", "1MiB")
    both = run("lint", "both", *call)
    assert both.exit_code == 1
    assert "both   uncertain, of several files that serve it rccl may run any for this call" in both.stdout
    assert "both/a.xml   uncertain, rccl may run it for this call" in both.stdout
    assert "b.xml is for the same calls, and either may be picked" in both.stdout
    (tmp_path / "both" / "a.xml").write_text("<algo>")
    broken = run("lint", "both", *call).stdout
    assert "both   no, rccl runs none of it for this call" in broken
    assert "both/b.xml   no, rccl does not run it for this call" in broken
    os.mkfifo(tmp_path / "pipe")
    assert "pipe is a pipe that nobody writes to" in refused("lint", "pipe", *call)


def test_nothing_that_is_read_is_overwritten(
    run: Run, ring_file: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    run("export", ring_file, "--to", "msccl-executor", "-o", "a.xml")
    before = (tmp_path / "a.xml").read_text()
    call = ("--target", "msccl-executor", "--size", "1MiB", "--ngpus", "4")
    (tmp_path / "link.xml").symlink_to("a.xml")
    for output in ("a.xml", "link.xml"):
        assert "which would be lost" in refused("lint", "a.xml", *call, "--fix", output)
        assert "which would be lost" in refused("check", "a.xml", "--shrink", output)
    (tmp_path / "kept.xml").write_text("kept")
    (tmp_path / "kept.xml").chmod(0o444)
    (tmp_path / "to kept.xml").symlink_to("kept.xml")
    for output in ("kept.xml", "to kept.xml"):
        assert "kept.xml is read-only" in refused("lint", "a.xml", *call, "--fix", output)
    assert (tmp_path / "a.xml").read_text() == before
    assert (tmp_path / "kept.xml").read_text() == "kept"
    assert "nothing to shrink" in run("check", "a.xml", "--shrink", "small.xml").stderr


def test_lint_respells(run: Run, ring_file: str, tmp_path: Path) -> None:
    run("export", ring_file, "--to", "msccl-executor", "-o", "a.xml")
    good = (tmp_path / "a.xml").read_text()
    odd = good.replace('coll="allreduce"', 'coll="all_reduce"').replace('proto="Simple"', 'proto="simple"')
    odd = odd.replace('type="rrc"', 'type="RRC"')
    assert odd.count("RRC") > 0
    (tmp_path / "b.xml").write_text(odd)
    call = ("--target", "msccl-executor", "--size", "1MiB", "--ngpus", "4")
    said = run("lint", "b.xml", *call).stdout
    assert "A04" in said
    assert "L02" not in said
    fixed = run("lint", "b.xml", *call, "--fix", "c.xml")
    assert fixed.exit_code == 0, fixed.stdout
    assert {"A03", "A04", "S02"} <= {word.strip(":") for word in fixed.stdout.split()}
    assert (tmp_path / "c.xml").read_text() == good
    assert "latecomer check proves it" in fixed.stdout
    assert run("lint", "-", *call, stdin=good).exit_code == 0


def test_one_fault_is_one_finding(run: Run, ring_file: str, tmp_path: Path) -> None:
    run("export", ring_file, "--to", "msccl-executor", "-o", "a.xml")
    good = (tmp_path / "a.xml").read_text()
    for old, new, said in (
        (' nchannels="', ' nchanels="', {"A02", "A15"}),
        (' cnt="1"', "", {"S01"}),
        ('type="s"', 'type="send"', None),
    ):
        (tmp_path / "b.xml").write_text(good.replace(old, new, 1))
        found = json.loads(run("check", "b.xml", "--target", "msccl-executor", "--json").stdout)["findings"]
        codes = {finding["code"] for finding in found}
        if said is None:
            assert "S02" in codes
            assert "D07" not in codes
        else:
            assert codes == said, found
    (tmp_path / "b.xml").write_text(good.replace(" nchannels=", " nchanels=", 1))
    assert "is nchanels= meant to be it?" in run("check", "b.xml").stderr
