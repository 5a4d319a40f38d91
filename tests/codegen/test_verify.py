"""What only a run shows: deadlock, races, wrong results; the real files; hostile input."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from latecomer.codegen import msccl_xml
from latecomer.codegen.lower import lower
from latecomer.codegen.shrink import shrink
from latecomer.codegen.verify import Report, examine, examine_text, verify
from latecomer.schedules.errors import IncorrectProgram, InputError
from latecomer.schedules.program import Gpu, Program, Protocol, Step, Threadblock
from latecomer.synth.algorithms import ring


def program(
    ranks: list[list[Threadblock]], chunks: int, scratch: int = 0, protocol: Protocol = "Simple", **more: object
) -> Program:
    gpus = tuple(Gpu(r, chunks, chunks, scratch, tuple(blocks)) for r, blocks in enumerate(ranks))
    whole = Program("test", "allreduce", len(ranks), 1 + max(t.chan for g in gpus for t in g.threadblocks), chunks,
                    protocol, True, False, 0, 2**30, gpus)
    return replace(whole, **more)  # type: ignore[arg-type]


def swap(first: tuple[Step, ...], second: tuple[Step, ...], chunks: int, scratch: int) -> Program:
    """Two ranks with one threadblock each."""
    return program([[Threadblock(0, 1, 1, 0, first)], [Threadblock(0, 0, 0, 0, second)]], chunks, scratch)


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}


S, R = Step("s", "o", 0, "o", 0), Step("r", "s", 0, "s", 0)
ADD = Step("re", "s", 0, "o", 0)


def test_a_swap_is_right_and_its_order_matters() -> None:
    good = swap((S, R, ADD), (R, S, ADD), 1, 1)
    assert codes(examine(good)) == set()
    needs_queue = swap((S, R, ADD), (S, R, ADD), 1, 1)
    assert codes(examine(needs_queue)) == {"K03"}
    old_value_lost = swap((S, R, ADD), (R, ADD, S), 1, 1)
    assert "W03" in codes(examine(old_value_lost))


def test_deadlock_names_the_circle() -> None:
    with pytest.raises(IncorrectProgram, match=r"gpu 0/tb 0/step 0.*K01.*\(a circle\)\. At run time: hang") as error:
        verify(swap((R, S, ADD), (R, S, ADD), 1, 1))
    assert error.value.exit_code == 1
    assert (error.value.gpu, error.value.tb, error.value.step) == (0, 0, 0)


@pytest.mark.parametrize(("protocol", "fits"), [("Simple", 2), ("LL", 8), ("LL128", 8)])
def test_deadlock_depends_on_the_size(protocol: Protocol, fits: int) -> None:
    """Both send all chunks in one step before they receive: fine while that is few messages."""
    k = fits + 1
    steps = tuple(step._replace(cnt=k) for step in (S, R, ADD))
    both = replace(swap(steps, steps, k, k), protocol=protocol)
    small = examine(both, sizes=[1024])
    large = examine(both, sizes=[2**30])
    assert small.correct, [str(f) for f in small.findings]
    assert "K03" in codes(small)
    assert "K02" in codes(large)
    found = next(f for f in large.findings if f.code == "K02")
    assert "gpu 0/tb 0/step 0 waits for gpu 1 to take what was sent" in str(found)
    steps = tuple(step._replace(cnt=fits) for step in (S, R, ADD))
    assert examine(replace(swap(steps, steps, fits, fits), protocol=protocol), sizes=[2**30]).correct


def test_results_are_named() -> None:
    cpy = Step("cpy", "s", 0, "o", 0)
    assert "W02" in codes(examine(swap((S, R, cpy), (R, S, ADD), 1, 1)))
    assert "W03" in codes(examine(swap((S, R, ADD, ADD), (R, S, ADD), 1, 1)))
    assert "W05" in codes(examine(swap((ADD, S, R), (R, S, ADD), 1, 1)))
    out = replace(swap((S, R, ADD), (R, S, ADD), 1, 1), in_place=False, out_of_place=True)
    assert "W05" in codes(examine(out))
    nothing = swap((Step("s", "i", 0, "i", 0), R), (R, Step("s", "i", 0, "i", 0)), 1, 1)
    assert "W04" in codes(examine(replace(nothing, in_place=False, out_of_place=True)))
    s1, r1 = S._replace(srcoff=1), R._replace(dstoff=1)
    crossed = swap((S, s1, R, r1, ADD._replace(dstoff=1), ADD._replace(srcoff=1)),
                   (R, r1, S, s1, ADD, ADD._replace(srcoff=1, dstoff=1)), 2, 2)
    assert "W01" in codes(examine(crossed))


def two_blocks(wait: int) -> Program:
    """Rank 1 receives in one threadblock and adds in another, which waits if `wait` is 0."""
    adder = Threadblock(1, -1, -1, 0, (ADD._replace(depid=wait, deps=wait),))
    receiver = Threadblock(0, -1, 0, 0, (R._replace(hasdep=1),))
    sender = Threadblock(2, 0, -1, 0, (S._replace(hasdep=1),))
    waits_too = replace(adder, steps=(Step("nop", depid=2, deps=0), *adder.steps)) if wait == 0 else adder
    one = Threadblock(0, 1, 1, 0, (S, R, ADD))
    return program([[one], [receiver, waits_too, sender]], 1, 1)


def test_races() -> None:
    assert codes(examine(two_blocks(0))) == set()
    report = examine(two_blocks(-1))
    assert "H01" in codes(report)
    race = next(f for f in report.findings if f.code == "H01")
    assert "nothing orders them" in race.message
    assert race.outcome == "wrong results, depending on timing"


def test_a_race_without_effect_is_a_note() -> None:
    # Scratch nobody reads is written by two threadblocks.
    spare = [Threadblock(t, -1, -1, 0, (Step("cpy", "o", 0, "s", 1),)) for t in (1, 2)]
    one = Threadblock(0, 1, 1, 0, (S, R, ADD))
    early = Threadblock(0, 0, 0, 0, (R, S, ADD))
    spare = [replace(t, steps=(t.steps[0]._replace(srcbuf="s", srcoff=2),)) for t in spare]
    noisy = program([[one], [early, *spare]], 1, 3)
    report = examine(noisy)
    assert report.correct
    assert "H02" in codes(report)


def test_an_order_that_only_full_queues_make_is_a_note() -> None:
    # Scratch 1 of rank 1 is written over channel 1 first, and over channel 2 last: rank 0 sends that only after its
    # third message on channel 1 has left, for which Simple needs the first to have been taken; LL has room for eight.
    done = ADD._replace(hasdep=1)
    many = Threadblock(1, 1, -1, 1, (S._replace(depid=0, deps=2), S, S._replace(hasdep=1)))
    last = Threadblock(2, 1, -1, 2, (S._replace(depid=1, deps=2),))
    takes = Threadblock(1, -1, 0, 1, tuple(R._replace(srcoff=k, dstoff=k) for k in (1, 2, 3)))
    takes_last = Threadblock(2, -1, 0, 2, (R._replace(srcoff=1, dstoff=1),))
    ranks = [[Threadblock(0, 1, 1, 0, (S, R, done)), many, last],
             [Threadblock(0, 0, 0, 0, (R, S, ADD)), takes, takes_last]]
    report = examine(program(ranks, 1, 4))
    assert report.correct
    assert "H03" in codes(report)
    assert "H02" in codes(examine(program(ranks, 1, 4, "LL")))


def test_send_buffer_and_waits() -> None:
    into_input = swap((S, R, ADD._replace(dstbuf="i")), (R, S, ADD), 1, 1)
    assert "S15" in codes(examine(replace(into_input, out_of_place=True)))
    good = two_blocks(0)
    blocks = list(good.gpus[1].threadblocks)
    later = replace(blocks[0], steps=(Step("cpy", "o", 0, "o", 0), *blocks[0].steps))
    report = examine(replace(good, gpus=(good.gpus[0], replace(good.gpus[1], threadblocks=(later, *blocks[1:])))))
    assert "D10" in codes(report)
    nop = replace(blocks[0], steps=(Step("nop", hasdep=0, depid=1, deps=0), R))
    report = examine(replace(good, gpus=(good.gpus[0], replace(good.gpus[1], threadblocks=(nop, *blocks[1:])))))
    assert "D04" in codes(report)


def test_shrinking_keeps_the_finding(shared_data: Callable[[str], Path]) -> None:
    from latecomer.codegen.msccl_xml import read

    path = shared_data("msccl-xml") / "msccl-scheduler__ncv4_ar_tree_12_LL.xml"
    good = read(path.read_text(), path.name)
    blocks = list(good.gpus[1].threadblocks)
    t = next(t for t, tb in enumerate(blocks) if sum(s.depid >= 0 for s in tb.steps))
    steps = tuple(s._replace(depid=-1, deps=-1) for s in blocks[t].steps)
    blocks[t] = replace(blocks[t], steps=steps)
    bad = replace(good, gpus=(good.gpus[0], replace(good.gpus[1], threadblocks=tuple(blocks)), *good.gpus[2:]))
    code = examine(bad).errors[0].code
    small = shrink(bad, code, tries=300)
    assert code in {f.code for f in examine(small).errors}
    assert sum(1 for _ in small.steps()) < 12
    assert small == shrink(bad, code, tries=300)


def test_shrinking_what_is_missing() -> None:
    """Rank 2's part is lost on the way; what brings the others stays."""
    good = lower(ring.schedule(4))
    gpu = good.gpus[2]
    k, s = next((k, s) for k, tb in enumerate(gpu.threadblocks) for s, x in enumerate(tb.steps)
                if x.type in ("rrc", "rrcs", "re"))
    tb = gpu.threadblocks[k]
    kind = {"rrc": "r", "rrcs": "rcs", "re": "cpy"}[tb.steps[s].type]
    step = tb.steps[s]._replace(type=kind)  # type: ignore[arg-type]
    blocks = (*gpu.threadblocks[:k], replace(tb, steps=(*tb.steps[:s], step, *tb.steps[s + 1:])),
              *gpu.threadblocks[k + 1:])
    bad = replace(good, gpus=(*good.gpus[:2], replace(gpu, threadblocks=blocks), *good.gpus[3:]))
    assert "W02" in codes(examine(bad))
    small = shrink(bad, "W02", tries=400)
    assert examine(small).facts["contributions_missing"] == 1
    assert 1 < sum(1 for _ in small.steps()) < sum(1 for _ in bad.steps())
    empty = swap((Step("s", "i", 0, "i", 0), R), (R, Step("s", "i", 0, "i", 0)), 1, 1)
    with pytest.raises(InputError, match="no step is at fault"):
        shrink(replace(empty, in_place=False, out_of_place=True), "W04")


FILES = ("ncv4_ag_hier_4_LL", "ncv4_ar_hier_12_Simple", "ncv4_ar_tree_12_LL", "ndv4_a2a2ll", "ndv4_ag-1k-512k",
         "ndv4_ag-32m-1g", "ndv4_ap-1pass", "ndv4_ap2ll", "ndv4_r48ll", "ndv4_r48ll128")


@pytest.mark.parametrize("name", FILES)
def test_the_ten_real_files_are_proven(name: str, shared_data: Callable[[str], Path]) -> None:
    text = (shared_data("msccl-xml") / f"msccl-scheduler__{name}.xml").read_text()
    start = time.process_time()
    report = examine_text(text, name, "msccl-executor")
    assert time.process_time() - start < 10
    assert report.correct, [str(f) for f in report.errors[:3]]
    # Two of the production rings need their queues: a note.
    assert all(f.severity == "note" for f in report.findings)
    if name == "ndv4_ag-32m-1g":
        assert report.facts["rendezvous_safe"] is False


def test_absurd_buffers_are_refused_before_they_are_made() -> None:
    text = msccl_xml.write(lower(ring.schedule(4))).replace('nchunksperloop="4"', 'nchunksperloop="2147483647"')
    with pytest.raises(InputError, match="buffers of 2147483647 chunks on 4 ranks are more than can be checked"):
        examine_text(text)


def test_hostile_files_cost_little() -> None:
    bomb = '<!DOCTYPE a [<!ENTITY x "ha">' + "".join(f'<!ENTITY x{i} "&x;&x;">' for i in range(50)) + "]><algo/>"
    nested = '<algo proto="Simple">' + "<a>" * 400_000
    attributes = "<algo " + " ".join(f'a{i}="1"' for i in range(50_000)) + ">"
    digits = '<algo ngpus="' + "9" * 1_000_000 + '">'
    ranks = '<algo proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2000000000" coll="allreduce" inplace="1" ' \
            'outofplace="0" minBytes="0" maxBytes="1"></algo>'
    blanks = "<algo" + " " * 1_000_000
    quotes = '<algo a="' * 20_000
    flat = '<algo proto="Simple">' + "<a/>" * 50_000
    for text in (bomb, nested, attributes, digits, blanks, quotes, flat):
        tracemalloc.start()
        start = time.process_time()
        with pytest.raises(InputError):
            examine_text(text, "hostile.xml")
        assert time.process_time() - start < 5
        assert tracemalloc.get_traced_memory()[1] < 100e6
        tracemalloc.stop()
    assert not examine_text(ranks, "hostile.xml").correct
    huge = swap((S._replace(cnt=2**31 - 1), R, ADD), (R, S, ADD), 1, 1)
    assert "S06" in codes(examine(huge))
