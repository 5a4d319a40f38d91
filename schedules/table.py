"""`table`: a schedule as text that people can read: a heading, then a line per round."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from latecomer.schedules.schedule import Certificate, Schedule
from latecomer.schedules.transfers import ACCUMULATOR, Transfers
from latecomer.schedules.units import count, format_size, format_time

WIDTH = 118


def table(schedule: Schedule, *, max_rounds: int | None = None) -> str:
    """Heading, certificate and every round (the first and last of more than `max_rounds`).

    `3>7 c0` copies chunk 0 from rank 3 to rank 7, `3>7 +c0` adds it there, `3<>7 c0` swaps and adds on both sides.
    """
    lines = [*_heading(schedule), *_certificate(schedule.certificate), ""]
    rounds = list(_rounds(schedule, schedule.transfers))
    if max_rounds is not None and len(rounds) > max_rounds:
        rounds = [
            *rounds[: max_rounds // 2],
            f"  … {count(len(rounds) - max_rounds, 'round')} …",
            *rounds[-((max_rounds + 1) // 2) :],
        ]
    lines += rounds
    if schedule.branches:
        rows = sum(len(branch.transfers) for branch in schedule.branches)
        lines += [
            "",
            f"then one of {len(schedule.branches)} branches, by the number of pre-work rounds started "
            f"when the late rank arrives ({count(rows, 'transfer')} in all)",
        ]
    return "\n".join(lines) + "\n"


def _heading(schedule: Schedule) -> Iterator[str]:
    late = [str(schedule.binding[role]) for role in schedule.late_roles]
    who = f"late rank {', '.join(late)}" if late else "nobody late"
    if late and schedule.bind_at == "arrival":
        who = "whoever is last"
    yield (
        f"{schedule.provenance.algorithm}: {schedule.collective}, {schedule.ranks} ranks, {who}, "
        f"{count(len(schedule.chunks), 'chunk')}, {schedule.ports} ports"
    )
    for kind in ("prework", "completion", "synchronous"):
        rows = schedule.transfers.where(schedule.kinds() == kind)
        if len(rows):
            title = {"prework": "pre-work", "completion": "completion", "synchronous": "all ranks together"}[kind]
            yield f"  {title}: {count(len(np.unique(rows.round)), 'round')}, {count(len(rows), 'transfer')}"


def _certificate(certificate: Certificate | None) -> Iterator[str]:
    if certificate is None:
        return
    bound = (
        "" if certificate.bound_rounds is None else f" (no one-port schedule has fewer than {certificate.bound_rounds})"
    )
    yield f"  after the last arrival: {count(certificate.rounds, 'round')}{bound}"
    gap = "" if certificate.gap is None else f", {certificate.gap:.1%} above the bandwidth bound"
    yield (
        f"  {format_size(certificate.size_bytes)}: {format_time(certificate.time_us)}{gap}"
        f" ({format_time(certificate.bound_us)})"
    )
    if certificate.note:
        yield f"  note: {certificate.note}"


def _rounds(schedule: Schedule, moves: Transfers) -> Iterator[str]:
    for number, rows in moves.by_round():
        kind = schedule.phases[int(moves.phase[rows.start])].kind
        label = f"{number:>5} {kind:<11} "
        line = label
        for text in _round(schedule, moves, rows):
            if len(line) + len(text) > WIDTH and line.strip():
                yield line.rstrip()
                line = " " * len(label)
            line += text + "  "
        yield line.rstrip()


def _round(schedule: Schedule, moves: Transfers, rows: slice) -> Iterator[str]:
    """The transfers of one round, chunks of one message together, swaps as one item."""
    names = schedule.binding
    messages: dict[tuple[int, int, int], list[str]] = {}
    for row in range(rows.start, rows.stop):
        key = (names[int(moves.src[row])], names[int(moves.dst[row])], int(moves.reduce[row]))
        messages.setdefault(key, []).append(_chunk(moves, row))
    for (src, dst, reduce), chunks in messages.items():
        if reduce and messages.get((dst, src, 1)) == chunks:
            if (src, dst) == min((src, dst), (dst, src)):
                yield f"{src}<>{dst} {_runs(chunks)}"
        else:
            yield f"{src}>{dst} {'+' if reduce else ''}{_runs(chunks)}"


def _chunk(moves: Transfers, row: int) -> str:
    slots = (int(moves.src_slot[row]), int(moves.dst_slot[row]))
    return str(int(moves.chunk[row])) + (f"[{slots[0]}>{slots[1]}]" if slots != (ACCUMULATOR, ACCUMULATOR) else "")


def _runs(chunks: list[str]) -> str:
    """before: ['0', '1', '2', '5']   after: c0-2,5"""
    runs: list[list[str]] = []
    for chunk in chunks:
        follows = runs and chunk.isdigit() and runs[-1][-1].isdigit() and int(chunk) == int(runs[-1][-1]) + 1
        if follows:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return "c" + ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
