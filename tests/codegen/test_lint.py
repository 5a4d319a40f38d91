"""Will this runtime pick this file for this call? And cuts of chunks that make it so."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from latecomer.codegen import msccl_xml
from latecomer.codegen.divide import fitting
from latecomer.codegen.lint import fix, lint, lint_text
from latecomer.codegen.lower import Options, lower
from latecomer.codegen.msccl_reader import read_with_notes
from latecomer.codegen.serves import Call, serves
from latecomer.codegen.targets import target
from latecomer.codegen.verify import examine_text
from latecomer.schedules.check import check
from latecomer.schedules.errors import InputError
from latecomer.synth.algorithms import ring, stragglar

MIB = 2**20
CALL = Call(64 * MIB, 4)


def text(to: str = "msccl-executor", chunks: int = 4, options: Options | None = None) -> str:
    return msccl_xml.write(lower(ring.schedule(4, chunks), to, options), to)


def reasons(file: str, call: Call, to: str) -> set[str]:
    answer = lint_text(file, "a.xml", call, target(to))
    return {f.code for f in answer.findings if f.severity == "error"}


@pytest.mark.parametrize("to", ["msccl-executor", "msccl", "rccl", "portable"])
def test_what_export_writes_is_picked(to: str) -> None:
    assert lint_text(text(to), "a.xml", CALL, target(to)).picked


@pytest.mark.parametrize(("code", "call", "to"), [
    ("L01", replace(CALL, ranks=8), "rccl"),
    ("L02", replace(CALL, collective="allgather"), "rccl"),
    ("L04", replace(CALL, size_bytes=2**31), "rccl"),
    ("L05", replace(CALL, size_bytes=64 * MIB + 4), "msccl"),
    ("L05", replace(CALL, size_bytes=64 * MIB + 1), "msccl"),
    ("L06", replace(CALL, in_place=False), "msccl"),
    ("L06", replace(CALL, in_place=False), "msccl-executor"),
])
def test_reasons_of_the_call(code: str, call: Call, to: str) -> None:
    assert reasons(text(to), call, to) == {code}


def test_reasons_of_the_file() -> None:
    assert reasons(text(options=Options(min_bytes=2**27)), CALL, "msccl-executor") == {"L03"}
    # The greatest size is served by the runtimes that include it, and not by the one that does not.
    largest = text(options=Options(max_bytes=64 * MIB))
    assert reasons(largest, CALL, "msccl-executor") == set()
    assert reasons(largest, CALL, "msccl") == {"L04"}
    assert "S11" in reasons(text(), CALL, "rccl")
    unlimited = text().replace(f'maxBytes="{2**30}"', 'maxBytes="0"')
    assert reasons(unlimited, CALL, "msccl-executor") == set()
    assert reasons(unlimited, CALL, "msccl") == {"A10", "L04"}
    assert reasons("<nothing/>", CALL, "msccl") == {"L10"}
    # 128 MiB is where microsoft/msccl ends without maxBytes.
    default = text().replace(f' maxBytes="{2**30}"', "")
    assert reasons(default, CALL, "msccl") == set()
    assert reasons(default, replace(CALL, size_bytes=2**27), "msccl") == {"L04"}
    assert "A09" in reasons(default, CALL, "msccl-executor")


def test_portable_is_judged_for_all_runtimes() -> None:
    assert "S11" in reasons(text(), CALL, "portable")
    answer = lint_text(text("rccl"), "a.xml", replace(CALL, size_bytes=2**30), target("portable"))
    assert [f.message.split(":")[0] for f in answer.findings if f.code == "L04"] == ["msccl"]


def test_directories_are_judged_as_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(text())
    (tmp_path / "b.xml").write_text(text())
    # A scan meets files in no order that anybody promises: either may run.
    for answer in lint([tmp_path], CALL, "msccl-executor"):
        assert not answer.picked
        assert {f.code for f in answer.findings} == {"L08"}
    (tmp_path / "b.xml").write_text(text().replace('type="s"', 'type="ra"', 1))
    first, second = lint([tmp_path], CALL, "msccl-executor")
    assert "b.xml is for the same calls" in first.findings[-1].message  # broken, and may be met first
    assert not second.picked
    (tmp_path / "b.xml").write_text(text().replace('maxBytes="', 'maxBytes="1" was="'))
    first, second = lint([tmp_path], CALL, "msccl-executor")
    assert first.picked
    assert not second.picked
    os.mkfifo(tmp_path / "pipe")
    assert not any(answer.picked for answer in lint([tmp_path], CALL, "msccl-executor"))
    (tmp_path / "pipe").unlink()
    (tmp_path / "README").write_text("notes")
    answers = lint([tmp_path], CALL, "msccl-executor")
    assert not any(answer.picked for answer in answers)
    assert all("L07" in {f.code for f in answer.findings} for answer in answers)
    (tmp_path / "new").mkdir()
    with pytest.raises(InputError, match="is empty"):
        lint([tmp_path / "new"], CALL, "rccl")
    with pytest.raises(InputError, match="cannot read"):
        lint([tmp_path / "missing.xml"], CALL, "rccl")
    (tmp_path / "latin").write_bytes(b"<algo \xff>")
    with pytest.raises(InputError, match="not a text file"):
        lint([tmp_path / "latin"], CALL, "rccl")


@pytest.mark.parametrize("damage", [
    lambda t: t.replace(' outofplace="0"', ""), lambda t: t.replace(' minBytes="0"', ""),
    lambda t: t.replace(f' maxBytes="{2**30}"', ""), lambda t: '<?xml version="1.0"?>\n' + t,
    lambda t: t.replace("  <gpu", "\t<gpu"), lambda t: t.replace('proto="Simple"', "proto='Simple'"),
    lambda t: t.replace("proto=", "proto = "), lambda t: t.replace(" i_chunks", "\n i_chunks"),
    lambda t: t.replace("<gpu", "<graph/><gpu", 1), lambda t: t.replace('s="1" type', 's="7" type', 1),
])
def test_mechanical_faults_are_repaired(damage: Callable[[str], str]) -> None:
    good = text()
    bad = damage(good)
    assert bad != good
    repaired, mended = fix(bad, "a.xml", "msccl-executor")
    assert repaired == good
    assert mended
    assert not fix(good, "a.xml", "msccl-executor")[1]


def test_other_faults_take_a_person() -> None:
    with pytest.raises(InputError, match="takes a person to repair"):
        fix(text().replace('type="rrcs"', 'type="rx"', 1), "a.xml", "msccl-executor")


def test_reduce_scatter_is_respelt() -> None:
    other = text().replace('coll="allreduce"', 'coll="reduce_scatter"')
    repaired, mended = fix(other, "a.xml", "msccl-executor")
    assert 'coll="reducescatter"' in repaired
    assert {f.code for f in mended} == {"A05"}


def test_a_real_file_is_mended_for_another_runtime(shared_data: Callable[[str], Path]) -> None:
    path = shared_data("msccl-xml") / "msccl-scheduler__ndv4_ap2ll.xml"
    repaired, _ = fix(path.read_text(), path.name, "msccl")
    assert examine_text(repaired, path.name, "msccl").correct


def test_serves_says_it_in_a_sentence() -> None:
    program = lower(ring.schedule(4), "msccl-executor", Options(min_bytes=1024))
    assert serves(program, target("msccl-executor")) == (
        "in-place allreduce calls of 4 ranks, 1 KiB … 1 GiB, whose element count is a multiple of 4")


@pytest.mark.parametrize(("ranks", "units"), [(4, 128), (8, 256), (16, 1024)])
def test_chunks_are_cut_to_divide_the_sizes(ranks: int, units: int) -> None:
    """256 units over 7 owners: 37 at most, 1.2 % more than an equal cut."""
    schedule = stragglar.schedule(ranks)
    cut = fitting(schedule, MIB, 2**30, 4)
    check(cut)
    assert cut.chunks.total == units
    most = max(cut.chunks.fraction(c) for c in range(len(cut.chunks)))
    assert most * len(cut.chunks) - 1 <= Fraction(2, 100)
    program = lower(cut, "portable")
    for size in (MIB, 16 * MIB, 2**30 - 2**30 % 4):
        answer = lint_text(msccl_xml.write(program, "portable"), "a", Call(size, ranks), target("rccl"))
        assert answer.picked, [str(f) for f in answer.findings]


def test_a_cut_that_fits_is_left_alone_and_one_that_cannot_is_said() -> None:
    schedule = ring.schedule(4)
    assert fitting(schedule, MIB, 2**30, 4) is schedule
    with pytest.raises(InputError, match="no cut into 7 chunks or more divides all of 16 B … 64 B"):
        fitting(stragglar.schedule(8), 16, 64, 4)


def test_the_reader_notes_what_each_runtime_minds() -> None:
    _, notes = read_with_notes(text().replace(' outofplace="0"', ""), "a.xml", "msccl")
    assert not notes
    _, notes = read_with_notes(text().replace(' outofplace="0"', ""), "a.xml", "rccl")
    assert [note.code for note in notes] == ["A07"]
