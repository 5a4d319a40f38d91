"""Programs that are wrong for some timing, size or placement only; each is judged by the reference interpreter too."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest

from latecomer.codegen import msccl_xml
from latecomer.codegen.lower import Options, lower
from latecomer.codegen.msccl_reader import read_with_notes
from latecomer.codegen.verify import Report, examine
from latecomer.schedules.errors import InputError
from latecomer.schedules.program import Gpu, Program, Protocol, Step, Threadblock
from latecomer.synth.algorithms import ring

from .cases import made
from .reference_interpreter import matters


def program(
    ranks: list[list[Threadblock]], chunks: int, scratch: int = 0, protocol: Protocol = "Simple"
) -> Program:
    gpus = tuple(Gpu(r, chunks, chunks, scratch, tuple(blocks)) for r, blocks in enumerate(ranks))
    return Program("test", "allreduce", len(ranks), 1, chunks, protocol, True, False, 0, 2**30, gpus)


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}


def test_a_dropped_wait_is_a_race_whoever_is_first_in_the_order_looked_at() -> None:
    schedule = made("halving_doubling", 4, 4)
    assert schedule is not None
    good = lower(schedule, "portable", Options(in_place=False, out_of_place=True))
    for g, gpu in enumerate(good.gpus):
        for t, tb in enumerate(gpu.threadblocks):
            for s, step in enumerate(tb.steps):
                if step.depid < 0:
                    continue
                steps = (*tb.steps[:s], step._replace(depid=-1, deps=-1), *tb.steps[s + 1:])
                if step.type == "nop":
                    continue  # another fault: a chain of nops must end in a wait
                blocks = (*gpu.threadblocks[:t], replace(tb, steps=steps), *gpu.threadblocks[t + 1:])
                bad = replace(good, gpus=(*good.gpus[:g], replace(gpu, threadblocks=blocks), *good.gpus[g + 1:]))
                assert (matters(bad, runs=4) is not None) == (not examine(bad).correct), (g, t, s)


def two_additions(second_waits: bool) -> Program:
    """Rank 0 gets the parts of ranks 1 and 2 in threadblocks that add them; the result goes back over a third rank."""
    add = Step("re", "s", 0, "o", 0)
    first = Threadblock(0, -1, 1, 0, (Step("r", "s", 0, "s", 0), add._replace(hasdep=1)))
    waits = add._replace(srcoff=1, hasdep=1)
    second = Threadblock(1, -1, 2, 0, (Step("r", "s", 1, "s", 1),
                                       waits._replace(depid=0, deps=1) if second_waits else waits))
    out = [Threadblock(2, 1, -1, 0, (Step("nop", depid=0, deps=1), Step("s", "o", 0, "o", 0, 1, 1, 1))),
           Threadblock(3, 2, -1, 0, (Step("nop", depid=0, deps=1), Step("s", "o", 0, "o", 0, 1, 1, 1)))]
    other = [Threadblock(0, 0, 0, 0, (Step("s", "o", 0, "o", 0), Step("r", "o", 0, "o", 0)))]
    return program([[first, second, *out], other, other], 1, 2)


def test_two_additions_at_once_may_lose_one() -> None:
    """An addition reads, then writes; that sums commute does not help."""
    assert examine(two_additions(True)).correct
    assert matters(two_additions(True)) is None
    assert "H01" in {f.code for f in examine(two_additions(False)).errors}
    assert matters(two_additions(False)) is not None


@pytest.mark.parametrize(("cnt", "fits"), [(4, True), (5, False)])
def test_forwarding_waits_for_data_and_room_at_once(cnt: int, fits: bool) -> None:
    """2 messages on the way out, 2 on the way back; a step that forwards holds none itself."""
    whole = Step("s", "o", 0, "o", 0, cnt)
    asks = Threadblock(0, 1, 1, 0, (whole, whole._replace(type="r")))
    answers = Threadblock(0, 0, 0, 0, (whole._replace(type="rrcs"),))
    both = program([[asks], [answers]], cnt)
    assert ("K02" not in codes(examine(both))) == fits
    assert (matters(both) is None) == fits


def test_a_forwarding_step_sends_its_first_chunk_before_it_has_its_last() -> None:
    """Rank 0 sends scratch 0 and 1 and gets the sums into scratch 1 and 2; large messages go chunk by chunk."""
    sends = Threadblock(0, 1, -1, 0, (Step("cpy", "o", 0, "s", 0, 2), Step("s", "s", 0, "s", 0, 2)))
    takes = Threadblock(1, -1, 1, 0, (Step("r", "s", 1, "s", 1, 2), Step("cpy", "s", 1, "o", 0, 2)))
    adds = Threadblock(0, 0, 0, 0, (Step("rrcs", "o", 0, "o", 0, 2),))
    both = program([[sends, takes], [adds]], 2, 3)
    assert examine(both, sizes=[1024]).correct
    assert "H01" in {f.code for f in examine(both, sizes=[2**30]).errors}
    assert matters(both) is not None
    assert matters(replace(both, gpus=(replace(both.gpus[0], threadblocks=(
        sends, replace(takes, steps=(Step("r", "s", 0, "s", 0, 2), Step("cpy", "s", 0, "o", 0, 2))))),
        both.gpus[1]))) is None


def test_a_step_must_not_read_what_it_writes_beside() -> None:
    one = Threadblock(0, 1, 1, 0, (Step("s", "o", 0, "o", 0, 2), Step("r", "s", 0, "s", 0, 2),
                                   Step("re", "s", 0, "o", 0, 2), Step("cpy", "s", 0, "s", 1, 2)))
    two = Threadblock(0, 0, 0, 0, (Step("r", "s", 0, "s", 0, 2), Step("s", "o", 0, "o", 0, 2),
                                   Step("re", "s", 0, "o", 0, 2)))
    report = examine(program([[one], [two]], 2, 3))
    assert {f.code for f in report.errors} == {"H04"}
    beside = replace(one, steps=(*one.steps[:3], Step("cpy", "s", 0, "s", 2, 2)))
    assert "H04" not in codes(examine(program([[beside], [two]], 2, 4)))


def test_in_place_input_and_output_are_one_buffer_for_overlaps() -> None:
    shifted = Threadblock(0, -1, -1, 0, (Step("cpy", "i", 0, "o", 1, 2),))
    alone = program([[shifted]], 3)
    assert "H04" in codes(examine(alone))
    assert "H04" not in codes(examine(replace(alone, in_place=False, out_of_place=True)))


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "alltoall"])
def test_pieces_are_whole_chunks(collective: str) -> None:
    block = Threadblock(0, -1, -1, 0, (Step("cpy", "s", 0, "s", 0),))
    odd = replace(program([[block]] * 2, 3, 1), collective=collective)  # type: ignore[arg-type]
    assert "A21" in codes(examine(odd))
    assert "A21" not in codes(examine(replace(odd, chunks=4)))


def into_the_input(in_place: bool) -> Program:
    """Right in place; out of place it spoils what the caller sends."""
    one = Threadblock(0, 1, 1, 0, (Step("s", "i", 0, "i", 0), Step("r", "s", 0, "s", 0), Step("re", "s", 0, "i", 0),
                                   Step("cpy", "i", 0, "o", 0)))
    two = replace(one, send=0, recv=0, steps=(one.steps[1], one.steps[0], *one.steps[2:]))
    return replace(program([[one], [two]], 1, 1), in_place=in_place, out_of_place=None, max_bytes=2**20)


def test_msccl_reads_the_in_place_flag_alone() -> None:
    assert examine(into_the_input(True), "msccl").correct
    # That flag off means out of place, whatever outofplace says; on, no call is out of place.
    assert "S15" in codes(examine(into_the_input(False), "msccl"))
    both = replace(into_the_input(True), out_of_place=True)
    assert examine(both, "msccl").correct
    assert "S15" in codes(examine(both, "msccl-executor"))


def test_an_empty_size_range() -> None:
    equal = replace(into_the_input(True), min_bytes=2**20)
    assert "A11" in codes(examine(equal, "msccl"))
    assert "A11" not in codes(examine(equal, "msccl-executor"))


def test_waits_cost_linear_time() -> None:
    steps = (Step("cpy", "s", 0, "s", 0),) * 60_000
    other = Threadblock(1, -1, -1, 0, tuple(step._replace(depid=0, deps=0) for step in steps))
    start = time.process_time()
    report = examine(program([[Threadblock(0, -1, -1, 0, steps), other]], 1, 1))
    assert {"D03", "G09"} <= codes(report)
    assert time.process_time() - start < 10


def test_a_custom_collective_has_no_result_to_judge() -> None:
    text = msccl_xml.write(lower(ring.schedule(3))).replace('coll="allreduce"', 'coll="custom"')
    assert examine(msccl_xml.read(text)).facts["result_judged"] is False
    assert "result_judged" not in examine(lower(ring.schedule(3))).facts


@pytest.mark.parametrize("blank", ["\u00a0", "\f", "\v"])
def test_what_only_looks_blank_is_text(blank: str) -> None:
    text = msccl_xml.write(lower(ring.schedule(3)))
    with pytest.raises(InputError, match="is not an attribute"):
        msccl_xml.read(text.replace(" proto=", f"{blank}proto=", 1))
    with pytest.raises(InputError, match="outside of tags"):
        msccl_xml.read(text.replace("<gpu", f"{blank}<gpu", 1))


def test_numbers_as_the_runtimes_read_them() -> None:
    text = msccl_xml.write(lower(ring.schedule(3)))
    for written, value in (("010", 8), ("08", 0), ("0x10", 16), ("-010", -8), ("+3", 3), (" 3", 3), ("3x", 3),
                           ("٣", 0)):
        program, _ = read_with_notes(re.sub('s_chunks="[0-9]+"', f's_chunks="{written}"', text, count=1))
        assert program.gpus[0].s_chunks == value, written
