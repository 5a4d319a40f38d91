"""Sends and receives must pair up on every connection: as many, equally long, on the same channel."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from latecomer.codegen.findings import Findings
from latecomer.codegen.graph import Connection
from latecomer.schedules.program import RECEIVES, SENDS, Program


class _End(NamedTuple):
    cnt: int
    line: int
    tb: int
    step: int


_Ends = dict[Connection, list[_End]]


def check_connections(program: Program, findings: Findings) -> None:
    """Add what does not pair up. O(steps)."""
    sends, receives = _ends(program)
    channels: dict[tuple[int, int], tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    for side, ends in enumerate((sends, receives)):
        for a, b, chan in ends:
            channels[a, b][side].add(chan)
    for connection in sorted(sends.keys() | receives.keys()):
        out, into = sends.get(connection, []), receives.get(connection, [])
        out_channels, in_channels = channels[connection[:2]]
        if not into and in_channels - out_channels:
            _other_channel(connection, out[0], True, min(in_channels - out_channels), findings)
        elif not out and out_channels - in_channels:
            _other_channel(connection, into[0], False, min(out_channels - in_channels), findings)
        else:
            _pairs(connection, out, into, findings)
    used = {connection.channel for connection in sends}
    if used and (used != set(range(max(used) + 1)) or max(used) + 1 < program.channels):
        findings.add("T12", f"nchannels={program.channels}, but channels {sorted(used)[:8]} are used", program.line)


def _ends(program: Program) -> tuple[_Ends, _Ends]:
    sends: _Ends = {}
    receives: _Ends = {}
    for gpu, tb, s, step in program.steps():
        here = _End(step.cnt, tb.lines[s] if tb.lines else 0, tb.id, s)
        if step.type in SENDS and tb.send >= 0:
            sends.setdefault(Connection(gpu.id, tb.send, tb.chan), []).append(here)
        if step.type in RECEIVES and tb.recv >= 0:
            receives.setdefault(Connection(tb.recv, gpu.id, tb.chan), []).append(here)
    return sends, receives


def _other_channel(connection: Connection, end: _End, sends: bool, other: int, findings: Findings) -> None:
    here, there = connection[:2] if sends else (connection.receiver, connection.sender)
    what = "sends" if sends else "receives"
    findings.add("C04", f"gpu {here} {what} on channel {connection.channel}, gpu {there} uses channel {other}",
                 end.line, here, end.tb, end.step)


def _pairs(connection: Connection, out: list[_End], into: list[_End], findings: Findings) -> None:
    a, b, chan = connection
    for x, y in zip(out, into, strict=False):
        if x.cnt != y.cnt:
            findings.add("C03", f"sends {x.cnt} chunks; gpu {b}/tb {y.tb}/step {y.step} (line {y.line}) receives "
                         f"{y.cnt}",
                         x.line, a, x.tb, x.step)
    if len(out) > len(into):
        first = out[len(into)]
        findings.add("C01", f"gpu {a} sends {len(out)} times to gpu {b} on channel {chan}, which receives "
                     f"{len(into)} times", first.line, a, first.tb, first.step)
    if len(into) > len(out):
        first = into[len(out)]
        findings.add("C02", f"gpu {b} receives {len(into)} times from gpu {a} on channel {chan}, which sends "
                     f"{len(out)} times", first.line, b, first.tb, first.step)
