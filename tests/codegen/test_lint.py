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
from latecomer.codegen.lint import MAX_FILES, Answer, fix, lint, lint_text
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


def in_directory(directory: Path, files: dict[str, str], to: str = "msccl-executor") -> dict[str, Answer]:
    for path in directory.iterdir():
        path.unlink()
    for name, content in files.items():
        (directory / name).write_text(content)
    return {Path(answer.file).name: answer for answer in lint([directory], CALL, to)}


def added(answer: Answer) -> list[tuple[str, str, str]]:
    return [(f.code, f.message, f.outcome) for f in answer.errors if f.code in ("L07", "L08")]


@pytest.mark.parametrize("to", ["msccl-executor", "rccl", "portable"])
def test_of_two_files_for_a_call_either_may_be_picked(tmp_path: Path, to: str) -> None:
    answers = in_directory(tmp_path, {"a.xml": text(to), "b.xml": text(to)}, to)
    for name, other in (("a.xml", "b.xml"), ("b.xml", "a.xml")):
        assert not answers[name].picked
        assert answers[name].perhaps
        [(code, message, _)] = added(answers[name])
        assert code == "L08"
        assert f"{other} is for the same calls, and either may be picked" in message
    # One that loads and hangs is picked by its first tag all the same.
    hangs = text(to).replace('hasdep="1"', 'hasdep="0"')
    answers = in_directory(tmp_path, {"a.xml": hangs, "b.xml": text(to)}, to)
    assert [code for code, *_ in added(answers["b.xml"])] == ["L08"]
    assert not added(answers["a.xml"])
    # One for other calls is in nobody's way.
    other_size = text(to).replace('maxBytes="', 'maxBytes="1" was="')
    answers = in_directory(tmp_path, {"a.xml": other_size, "b.xml": text(to)}, to)
    assert answers["b.xml"].picked
    assert not answers["a.xml"].picked


def test_a_list_is_taken_in_its_order(tmp_path: Path) -> None:
    answers = in_directory(tmp_path, {"a.xml": text("msccl"), "b.xml": text("msccl")}, "msccl")
    assert answers["a.xml"].picked
    assert added(answers["b.xml"]) == [
        ("L08", "a.xml, before it in the order of names, is for the same calls", "the first of the list runs")]
    # What it refuses it skips: a first tag, a body, a file that is something else.
    bad = {"a.xml": text("msccl").replace(" name=", " called="), "b.xml": text("msccl").replace(' type="s"', ""),
           "c": "notes"}
    answers = in_directory(tmp_path, {**bad, "d.xml": text("msccl")}, "msccl")
    assert {name: answer.picked for name, answer in answers.items()} == dict.fromkeys(bad, False) | {"d.xml": True}


@pytest.mark.parametrize("damage", [
    lambda t: t.replace(" minBytes=", " least="), lambda t: "\t" + t, lambda t: '<?xml version="1.0"?>\n' + t,
    lambda t: t.replace('coll="allreduce"', 'coll="custom"'), lambda t: t.replace("<algo", "<algo cut", 1),
    lambda t: "", lambda t: "notes",
])
def test_an_unreadable_first_tag_stops_the_scan(tmp_path: Path, damage: Callable[[str], str]) -> None:
    good = text()
    for bad, other in (("a.xml", "b.xml"), ("b.xml", "a.xml")):
        answers = in_directory(tmp_path, {bad: damage(good), other: good})
        [(code, message, outcome)] = added(answers[other])
        assert (code, answers[other].picked) == ("L07", False)
        assert message == f"the directory also holds {bad}, at which the runtime's scan stops"
        assert "the scan of the directory stops" in outcome


@pytest.mark.parametrize("damage", [
    lambda t: t.replace(' type="s"', "", 1), lambda t: t.replace("  <gpu", "\t<gpu", 1),
    lambda t: t[: len(t) // 2], lambda t: t.replace('proto="Simple"', 'proto="simple"'),
    lambda t: t.replace('maxBytes="', 'maxBytes="1" was="').replace(' type="s"', "", 1),  # for other calls
])
def test_a_refused_body_ends_start_up_for_all(tmp_path: Path, damage: Callable[[str], str]) -> None:
    answers = in_directory(tmp_path, {"a.xml": damage(text()), "b.xml": text()})
    assert not answers["b.xml"].picked
    assert added(answers["b.xml"]) == [
        ("L07", "the directory also holds a.xml, which is for as many ranks and is refused when it is loaded",
         "communicator start-up fails")]
    # Files for other numbers of ranks are not loaded.
    answers = in_directory(tmp_path, {"a.xml": damage(text().replace('ngpus="4"', 'ngpus="5"')), "b.xml": text()})
    assert answers["b.xml"].picked


def test_only_files_of_a_directory_are_opened(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(text())
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "sub").mkdir()
    answers = {Path(a.file).name: a for a in lint([tmp_path], CALL, "msccl-executor")}
    assert answers["a.xml"].picked  # a scan passes over what is neither file nor link
    assert [str(f) for name in ("pipe", "sub") for f in answers[name].findings] == [
        f"{tmp_path}/{name}: note L07: {name} is {kind}, no file. At run time: skipped by the runtimes"
        for name, kind in (("pipe", "a pipe, a socket or a device"), ("sub", "a directory"))]
    for leads_to in ("pipe", "sub", "nowhere"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(leads_to)
        answers = {Path(a.file).name: a for a in lint([tmp_path], CALL, "msccl-executor")}
        assert not answers["a.xml"].picked
        assert "link is a link to no regular file" in answers["link"].errors[0].message
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("a.xml")
    assert all(answer.perhaps for answer in lint([tmp_path], CALL, "msccl-executor") if "xml" in answer.file)


@pytest.mark.parametrize(("to", "most"), [("msccl", 4), ("portable", 4), ("rccl", 1024), ("msccl-executor", 1024)])
def test_runtimes_load_so_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, most: int) -> None:
    assert MAX_FILES.get(to, 4) == most
    monkeypatch.setattr("latecomer.codegen.lint.MAX_FILES", {"msccl": 4, "rccl": 4, "msccl-executor": 4})
    sizes = [text(to, options=Options(min_bytes=2**k, max_bytes=2 ** (k + 1) - 1)) for k in range(22, 27)]
    files = {f"{k}.xml": content for k, content in enumerate(sizes)}  # the last one is for the call
    answers = in_directory(tmp_path, files, to)
    assert not answers["4.xml"].picked
    if to in ("msccl", "portable"):
        reason = f"it is not among the first 4 in the order of names, and {to} loads no more"
        assert {name: [m for _, m, _ in added(answer)] for name, answer in answers.items()} == {
            name: [reason] if name == "4.xml" else [] for name in files}
    else:
        reason = f"the directory has 5 files for as many ranks, and {to} loads at most 4"
        assert all(added(a) == [("L07", reason, "communicator start-up fails")] for a in answers.values())
        files["0.xml"] = files["0.xml"].replace('ngpus="4"', 'ngpus="5"')
    assert in_directory(tmp_path, dict(list(files.items())[to in ("msccl", "portable"):]), to)["4.xml"].picked


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with pytest.raises(InputError, match="is empty"):
        lint([tmp_path / "new"], CALL, "rccl")
    with pytest.raises(InputError, match="cannot read"):
        lint([tmp_path / "missing.xml"], CALL, "rccl")
    (tmp_path / "latin").write_bytes(b"<algo \xff>")
    with pytest.raises(InputError, match="not a text file"):
        lint([tmp_path / "latin"], CALL, "rccl")
    assert "not a text file" in lint([tmp_path], CALL, "rccl")[0].errors[0].message
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe that nobody writes to"):
        lint([tmp_path / "pipe"], CALL, "rccl")
    with pytest.raises(InputError, match="is a device, not a file"):
        lint([Path("/dev/zero")], CALL, "rccl")


def test_a_pipe_with_a_writer_is_read() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as file:
        file.write(text())
    try:
        assert lint([Path(f"/dev/fd/{reading}")], CALL, "msccl-executor")[0].picked
    finally:
        os.close(reading)


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
