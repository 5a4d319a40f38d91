"""From moves to a `Schedule`: the two shapes an AllReduce has here, synchronous or completed after a late rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latecomer import __version__
from latecomer.schedules.chunks import Chunks
from latecomer.schedules.pattern import Pattern
from latecomer.schedules.schedule import Phase, PortModel, Provenance, Schedule
from latecomer.schedules.transfers import Transfers
from latecomer.synth.algorithms.completion import Completion

Parameters = Mapping[str, int | float | str | bool | None]


@dataclass(frozen=True)
class Prework:
    """What the early ranks, roles 0 … n-2, do before the straggler comes: `transfers` (phase 0, from round 0)."""

    name: str
    transfers: Transfers
    patterns: tuple[Pattern, ...] = ()


def synchronous(
    algorithm: str,
    ranks: int,
    transfers: Transfers,
    chunks: Chunks,
    *,
    ports: PortModel = "exclusive",
    patterns: Sequence[Pattern] = (),
    parameters: Parameters | None = None,
) -> Schedule:
    """All ranks are there from the start; one phase."""
    return Schedule(
        ranks=ranks,
        binding=tuple(range(ranks)),
        ports=ports,
        stages=(0,) * ranks,
        phases=(Phase(kind="synchronous", stage=0),),
        chunks=chunks,
        patterns=tuple(patterns),
        provenance=provenance(algorithm, len(chunks), parameters),
        transfers=transfers,
    )


def completed(
    algorithm: str,
    ranks: int,
    prework: Prework,
    completion: Completion,
    chunks: Chunks | None = None,
    *,
    ports: PortModel = "exclusive",
    parameters: Parameters | None = None,
) -> Schedule:
    """`prework` among roles 0 … n-2, then `completion` with the straggler, role n-1, in the rounds that follow."""
    chunks = chunks or Chunks.equal(completion.owners)
    before = prework.transfers.rounds
    after = completion.transfers
    moved = Transfers.of(after.round + before, *after.columns()[1:5], after.phase + 1, after.src_slot, after.dst_slot)
    later = [p.model_copy(update={"first_round": p.first_round + before, "phase": 1}) for p in completion.patterns]
    return Schedule(
        ranks=ranks,
        binding=tuple(range(ranks)),
        ports=ports,
        stages=(*(0,) * (ranks - 1), 1),
        phases=(Phase(kind="prework", stage=0), Phase(kind="completion", stage=1)),
        chunks=chunks,
        patterns=(*prework.patterns, *later),
        provenance=provenance(algorithm, len(chunks), {"prework": prework.name, **(parameters or {})}),
        transfers=Transfers.concat(prework.transfers, moved),
    )


def provenance(algorithm: str, chunks: int, parameters: Parameters | None) -> Provenance:
    """How to make the schedule again: the tool, the algorithm, its parameters."""
    return Provenance(
        tool=f"latecomer {__version__}", algorithm=algorithm, parameters={"chunks": chunks, **(parameters or {})}
    )
