"""One broken rule a file: each gives its code on its line, and says what happens at run time."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from latecomer.codegen import msccl_xml
from latecomer.codegen.findings import RULES
from latecomer.codegen.lower import Options, lower
from latecomer.codegen.verify import examine_text
from latecomer.schedules.errors import InputError

from .cases import made

Edit = Callable[[list[str]], int]
"""Breaks the lines in place and returns the number of the line that the finding should name."""


def base(name: str = "stragglar", target: str = "msccl-executor", options: Options | None = None) -> list[str]:
    schedule = made(name, 4, 3)
    assert schedule is not None
    return msccl_xml.write(lower(schedule, target, options), target).splitlines()


def sub(where: str, old: str, new: str, nth: int = 0) -> Edit:
    """On the `nth` line that `where` is found in, the pattern `old` becomes `new`."""
    def edit(lines: list[str]) -> int:
        hits = [i for i, line in enumerate(lines) if re.search(where, line)]
        i = hits[nth]
        changed = re.sub(old, new, lines[i], count=1)
        assert changed != lines[i], lines[i]
        lines[i] = changed
        return i + 1
    return edit


def root(old: str, new: str) -> Edit:
    return sub("<algo", old, new)


def attribute(tag: str, name: str, value: str | None, nth: int = 0) -> Edit:
    """Another value, or none at all, for an attribute of the nth such tag."""
    return sub(f"<{tag} ", rf' {name}="[^"]*"', "" if value is None else f' {name}="{value}"', nth)


def step(kind: str, name: str, value: str | None, nth: int = 0) -> Edit:
    return sub(f'type="{kind}"', rf' {name}="[^"]*"', "" if value is None else f' {name}="{value}"', nth)


def insert(before: str, text: str, names: int = 0) -> Edit:
    """`text` (one or more lines) before the first line with `before`; the finding is `names` lines further on."""
    def edit(lines: list[str]) -> int:
        i = next(i for i, line in enumerate(lines) if before in line)
        lines[i:i] = text.split("\n")
        return i + 1 + names
    return edit


def delete(first: str, last: str, line: int) -> Edit:
    """Without the lines from the first with `first` to the next with `last`."""
    def edit(lines: list[str]) -> int:
        i = next(i for i, text in enumerate(lines) if first in text)
        j = next(j for j in range(i, len(lines)) if last in lines[j])
        del lines[i:j + 1]
        return line
    return edit


def append(text: str) -> Edit:
    def edit(lines: list[str]) -> int:
        lines.append(text)
        return len(lines)
    return edit


def nop_before(kind: str) -> Edit:
    """A nop before a step that waits for nothing."""
    def edit(lines: list[str]) -> int:
        i = next(i for i, t in enumerate(lines) if f'type="{kind}"' in t and 's="0"' in t and 'depid="-1"' in t)
        nop = re.sub('type="[a-z]*"', 'type="nop"', lines[i])
        lines.insert(i, nop)
        return i + 2
    return edit


def many_reduces(count: int, last_cnt: int = 1) -> Edit:
    """A threadblock of its own whose `re` steps merge into one."""
    def edit(lines: list[str]) -> int:
        i = next(i for i, t in enumerate(lines) if "</gpu>" in t)
        number = sum("<tb " in t for t in lines[:i])
        steps = [f'      <step s="{s}" type="re" srcbuf="s" srcoff="0" dstbuf="s" dstoff="0" '
                 f'cnt="{last_cnt if s == count - 1 else 1}" depid="-1" deps="-1" hasdep="0"/>' for s in range(count)]
        lines[i:i] = [f'    <tb id="{number}" send="-1" recv="-1" chan="0">', *steps, "    </tb>"]
        return i + 1 + count
    return edit


def no_blocks(lines: list[str]) -> int:
    i = next(i for i, t in enumerate(lines) if "<tb " in t)
    del lines[i:next(j for j, t in enumerate(lines) if "</gpu>" in t)]
    return 2


def both_flags(lines: list[str]) -> int:
    root('inplace="1" outofplace="0"', 'inplace="0" outofplace="0"')(lines)
    return 1


def many_blocks(count: int, name: str) -> Edit:
    def edit(lines: list[str]) -> int:
        i = next(i for i, t in enumerate(lines) if "</gpu>" in t)
        number = sum("<tb " in t for t in lines[:i])
        lines[i:i] = [f'    <tb id="{number + k}" send="-1" recv="-1" chan="0"></tb>' for k in range(count)]
        return 2
    return edit


def long_block(lines: list[str]) -> int:
    i = next(i for i, t in enumerate(lines) if "</gpu>" in t)
    number = sum("<tb " in t for t in lines[:i])
    steps = [f'      <step s="{s}" type="cpy" srcbuf="s" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" '
             'deps="-1" hasdep="0"/>' for s in range(65)]
    lines[i:i] = [f'    <tb id="{number}" send="-1" recv="-1" chan="0">', *steps, "    </tb>"]
    return i + 66


def crowded_channel(lines: list[str]) -> int:
    i = next(i for i, t in enumerate(lines) if "</gpu>" in t)
    number = sum("<tb " in t for t in lines[:i])
    lines[i:i] = [f'    <tb id="{number + k}" send="{4 + k}" recv="-1" chan="0"></tb>' for k in range(40)]
    lines[0] = lines[0].replace('ngpus="4"', 'ngpus="60"')
    sends = [j for j, t in enumerate(lines[: i + 40]) if re.search(r'send="\d', t)]
    return sends[32] + 1


def own_wait(lines: list[str]) -> int:
    i = next(i for i, t in enumerate(lines) if ' s="1"' in t)
    tb = max(j for j in range(i) if "<tb " in lines[j])
    number = re.search(r'id="(\d+)"', lines[tb])
    assert number is not None
    lines[i] = re.sub('depid="[-0-9]*" deps="[-0-9]*"', f'depid="{number[1]}" deps="1"', lines[i])
    return i + 1


def no_peer(way: str, kind: str) -> Edit:
    def edit(lines: list[str]) -> int:
        i = next(i for i, t in enumerate(lines) if f'type="{kind}"' in t)
        tb = max(j for j in range(i) if "<tb " in lines[j])
        lines[tb] = re.sub(rf'{way}="\d+"', f'{way}="-1"', lines[tb])
        first = next(j for j in range(tb + 1, len(lines)) if re.search('type="(s|rcs|rrs|rrcs)"' if way == "send"
                                                                       else 'type="r[^e]?', lines[j]))
        return first + 1
    return edit


def unread(lines: list[str]) -> int:
    """The first step that a later one waits for posts no more."""
    waits = next(t for t in lines if re.search('depid="[0-9]', t))
    tb, s = re.findall('dep(?:id|s)="([0-9]+)"', waits)
    start = next(j for j, t in enumerate(lines) if f'<tb id="{tb}"' in t)
    end = next(j for j in range(start, len(lines)) if "</tb>" in lines[j])
    for j in range(start, end):
        lines[j] = lines[j].replace('hasdep="1"', 'hasdep="0"')
    assert s
    return lines.index(waits) + 1


NOP = ('      <step s="0" type="nop" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" '
       'hasdep="0"/>')

BAD: list[tuple[str, str, str | None, Edit]] = [
    # §1 text
    ("X01", "a tab between elements", None, sub("<gpu ", "^  ", "\t")),
    ("X01", "a tab between attributes", None, sub("<gpu ", " i_chunks", "\ti_chunks")),
    ("X02", "a declaration", None, insert("<algo", '<?xml version="1.0"?>', 1)),
    ("X02", "a byte order mark", None, root("<algo", "\ufeff<algo")),
    ("X03", "text after the end", None, append("<algo/>")),
    ("X04", "single quotes", None, root('proto="Simple"', "proto='Simple'")),
    ("X05", "a tag over two lines", None, sub("<gpu ", " i_chunks", "\n i_chunks")),
    ("X06", "blanks round =", None, root("proto=", "proto = ")),
    ("X07", "17 attributes", None, root("<algo", "<algo " + " ".join(f'a{i}="1"' for i in range(7)))),
    ("X08", "a value of 300 characters", None, root('name="[^"]*"', 'name="' + "x" * 300 + '"')),
    ("X09", "an entity", None, root('name="', 'name="&amp;')),
    ("X10", "an attribute twice", None, root("<algo", '<algo proto="Simple"')),
    ("X11", "an unknown element", None, insert("<gpu", "  <graph/>")),
    ("X12", "no number", None, attribute("gpu", "s_chunks", "many")),
    ("X13", "an octal number", None, attribute("tb", "id", "00")),
    ("X12", "an octal number that is none", None, attribute("gpu", "s_chunks", "08")),
    ("X12", "digits of another script", None, attribute("gpu", "s_chunks", "٣")),
    ("A18", "threads in another script's digits", "msccl", root("proto=", 'nthreads="²" proto=')),
    ("X14", "a huge number", None, attribute("gpu", "s_chunks", "9" * 400)),
    ("X15", "a long name", None, root('name="', 'name="' + "n" * 70)),
    # §2 root
    ("A01", "no name", "msccl", root(' name="[^"]*"', "")),
    *[("A02", f"no {key}", None, root(f' {key}="[^"]*"', ""))
      for key in ("ngpus", "nchannels", "nchunksperloop", "proto", "coll", "inplace")],
    ("A03", "proto in small letters", None, root('proto="Simple"', 'proto="simple"')),
    ("A04", "an unknown collective", None, root('coll="allreduce"', 'coll="all_reduce"')),
    ("A05", "reduce_scatter for the executor", "msccl-executor", root('coll="allreduce"', 'coll="reduce_scatter"')),
    ("A06", "reducescatter for msccl", "msccl", root('coll="allreduce"', 'coll="reducescatter"')),
    ("A07", "no outofplace", "msccl-executor", root(' outofplace="0"', "")),
    ("A08", "no minBytes", "rccl", root(' minBytes="0"', "")),
    ("A09", "no maxBytes", "msccl-executor", root(' maxBytes="[0-9]*"', "")),
    ("A10", "maxBytes 0", "msccl", root('maxBytes="[0-9]*"', 'maxBytes="0"')),
    ("A11", "minBytes above maxBytes", None, root('minBytes="0"', 'minBytes="4294967296"')),
    ("A12", "a negative size", None, root('minBytes="0"', 'minBytes="-1"')),
    ("A13", "neither placement", "rccl", both_flags),
    ("A14", "a flag of 2", "msccl", root('inplace="1"', 'inplace="2"')),
    ("A15", "no channels", None, root('nchannels="[0-9]*"', 'nchannels="0"')),
    ("A15", "33 channels", "msccl-executor", root('nchannels="[0-9]*"', 'nchannels="33"')),
    ("A16", "no chunks", None, root('nchunksperloop="[0-9]*"', 'nchunksperloop="0"')),
    ("A17", "no gpus", None, root('ngpus="4"', 'ngpus="0"')),
    ("A18", "nthreads 100", "msccl", root("<algo", '<algo nthreads="100"')),
    ("A19", "a collective of some runtimes", None, root('coll="allreduce"', 'coll="alltoallv"')),
    ("A20", "maxBytes by default", "msccl", root(' maxBytes="[0-9]*"', "")),
    # §4 gpus and buffers
    ("G01", "a gpu missing", None, delete('<gpu id="3"', "</gpu>", 1)),
    ("G02", "a gpu twice", None, attribute("gpu", "id", "2", 3)),
    ("G03", "a gpu too many", None, attribute("gpu", "id", "7", 3)),
    *[("G04", f"no {key}", None, attribute("gpu", key, None)) for key in ("id", "i_chunks", "o_chunks", "s_chunks")],
    ("G05", "no threadblocks", None, no_blocks),
    ("G06", "i_chunks", "msccl", attribute("gpu", "i_chunks", "2")),
    ("G07", "o_chunks", "msccl", attribute("gpu", "o_chunks", "9")),
    ("G08", "negative s_chunks", None, attribute("gpu", "s_chunks", "-1")),
    ("G09", "5000 threadblocks", None, many_blocks(5000, "nodes")),
    ("G10", "o_chunks beyond the data", None, attribute("gpu", "o_chunks", "9")),
    # §5 threadblocks
    *[("T01", f"no {key}", None, attribute("tb", key, None)) for key in ("id", "send", "recv", "chan")],
    ("T02", "a gap in the ids", None, attribute("tb", "id", "77")),
    ("T03", "an id twice", None, attribute("tb", "id", "0", 1)),
    ("T04", "70 threadblocks", "rccl", many_blocks(70, "tb")),
    ("T05", "65 steps", "msccl-executor", long_block),
    ("T06", "a peer too many", None, sub('<tb .*send="[0-9]', 'send="[0-9]+"', 'send="9"')),
    ("T07", "sends to itself", None, sub('<tb .*send="[0-9]', 'send="[0-9]+"', 'send="0"')),
    ("T08", "channel 32", None, attribute("tb", "chan", "32")),
    ("T09", "channel 5 of 1", None, attribute("tb", "chan", "5")),
    ("T10", "33 connections on a channel", None, crowded_channel),
    ("T13", "channel -1", None, attribute("tb", "chan", "-1")),
    ("T12", "unused channels", None, root('nchannels="[0-9]*"', 'nchannels="7"')),
    ("T14", "no steps", None, insert("</gpu>", '    <tb id="9" send="-1" recv="-1" chan="0"></tb>')),
    # §6 steps
    *[("S01", f"no {key}", None, step("s", key, None))
      for key in ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep")],
    ("S02", "type rr", None, step("s", "type", "rr")),
    ("S03", "type ra", None, step("s", "type", "ra")),
    ("S04", "buffer x", None, step("s", "srcbuf", "x")),
    ("S05", "s out of order", None, step("s", "s", "9")),
    ("S06", "cnt 0", None, step("s", "cnt", "0")),
    ("S06", "cnt 72", None, step("rrc", "cnt", "72")),
    ("S07", "offset beyond", None, step("s", "srcoff", "99")),
    ("S07", "offset -1", None, step("rrc", "dstoff", "-1")),
    ("S08", "cnt beyond", None, step("s", "cnt", "9")),
    ("S09", "sends to nobody", None, no_peer("send", "s")),
    ("S10", "receives from nobody", None, no_peer("recv", "rrc")),
    ("S11", "fused for RCCL", "rccl", sub('type="rrc', "$", " ")),
    ("S12", "a trailing nop", None, insert("</tb>", NOP)),
    ("S13", "merged re of different cnt", None, many_reduces(3, 2)),
    ("S14", "17 merged re", None, many_reduces(17)),
    # §6 dependencies
    ("D01", "waits for a threadblock that is not there", None, sub('depid="[0-9]', 'depid="[0-9]+"', 'depid="40"')),
    ("D02", "waits for a step that is not there", None, sub('depid="[0-9]', 'deps="[0-9]+"', 'deps="50"')),
    ("D03", "waits for a step that never posts", None, unread),
    ("D05", "waits for itself", None, own_wait),
    ("D06", "depid 130", None, sub('depid="[0-9]', 'depid="[0-9]+"', 'depid="130"')),
    ("D07", "a nop chain without end", None, nop_before("s")),
    ("D08", "hasdep 2", None, step("s", "hasdep", "2")),
    ("D11", "depid without deps", None, sub('depid="[0-9]', 'deps="[0-9]+"', 'deps="-1"')),
]


@pytest.mark.parametrize(("code", "what", "target", "edit"), BAD, ids=[f"{c}-{w}" for c, w, _, _ in BAD])
def test_code_and_line(code: str, what: str, target: str | None, edit: Edit) -> None:
    lines = base()
    line = edit(lines)
    report = examine_text("\n".join(lines) + "\n", "bad.xml", target)
    found = [(f.code, f.line) for f in report.findings]
    assert (code, line) in found, f"{what}: {found[:12]}"
    finding = next(f for f in report.findings if f.code == code)
    assert finding.outcome
    assert f"bad.xml:{finding.line}" in str(finding)
    if RULES[code].breaks and ((target is None and len(RULES[code].breaks) == 3) or target in RULES[code].breaks):
        assert finding.severity == "error"


def test_there_are_eighty_and_the_base_is_clean() -> None:
    assert len(BAD) >= 80
    for target in ("msccl-executor", "msccl"):
        assert not examine_text("\n".join(base()) + "\n", "good.xml", target).findings


CONNECTION_FAULTS: list[tuple[str, Edit]] = [
    ("C01", sub('type="rrc"', '<step.*/>', "")),
    ("C02", sub('type="s"', '<step.*/>', "", 0)),
    ("C03", step("rrc", "cnt", "2")),
    ("C04", sub('<tb .*send="[0-9]', 'chan="0"', 'chan="1"', 1)),
    ("T11", sub('<tb .*send="[0-9]', 'send="[0-9]+"', 'send="3"', 1)),
]


@pytest.mark.parametrize(("code", "edit"), CONNECTION_FAULTS, ids=[c for c, _ in CONNECTION_FAULTS])
def test_connections(code: str, edit: Edit) -> None:
    lines = base()
    lines[0] = lines[0].replace('nchannels="1"', 'nchannels="2"')
    edit(lines)
    errors = examine_text("\n".join(lines), "bad.xml").errors
    assert code in {f.code for f in errors}, [str(f) for f in errors]


@pytest.mark.parametrize(("text", "message"), [
    ("", "it should start with <algo"),
    ("<html></html>", "found <html>"),
    ('<!DOCTYPE a [<!ENTITY b "c">]><algo/>', "document types and entities"),
    ("<algo proto='Simple'", "is not a complete tag"),
    ("<!-- never ends", "a comment that does not end"),
    ("<?xml ", "a declaration that does not end"),
    ("\0\x01\x02 junk", "binary file"),
    ("hello <algo>", "outside of tags"),
    ('<algo a=b>', "is not an attribute"),
    ('<algo a="1"b="2">', "is not an attribute"),
    ('<algo proto="Simple">\n<gpu id="0">\n</algo>', "bad.xml:3: </algo> where </gpu> should be"),
    ('<algo proto="Simple">\n<gpu id="0">\n', "<gpu> does not end; is the file cut off?"),
    ('<algo><x><y></y>', "does not end"),
])
def test_what_is_no_program_at_all(text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as error:
        examine_text(text, "bad.xml")
    assert error.value.exit_code == 2
    assert "bad.xml" in str(error.value)


def test_a_file_cut_anywhere_says_so() -> None:
    text = "\n".join(base())
    for end in range(1, len(text) - len("</algo>"), 97):
        with pytest.raises(InputError, match=r"cut\.xml"):
            examine_text(text[:end], "cut.xml")


def test_read_gives_up_where_the_program_is_unknown() -> None:
    lines = base()
    line = step("s", "type", "rr")(lines)
    with pytest.raises(InputError, match=rf"bad\.xml:{line}: type='rr'; there are cpy, nop, r, rcs"):
        msccl_xml.read("\n".join(lines), "bad.xml")
