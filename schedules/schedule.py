"""`Schedule`: the noun everything else is about: who sends which chunk to whom, in what order of priority.

What a schedule means
---------------------
Every rank has, for each chunk, an *accumulator* (slot 0) that starts with its own contribution, and relay slots
(1, 2, …) that start empty. A transfer reads a slot at its source and copies into, or reduces into, a slot
at its destination. An AllReduce is done when every accumulator holds every rank's contribution exactly once.

**A round is a priority per port, not a barrier.** A transfer of round t

* reads what the transfers of rounds < t have written to its source slot, never what round t itself writes
  (so two ranks that swap in one round both send their old values);
* writes after every transfer of rounds ≤ t that reads, and every one of rounds < t that writes, its
  destination slot; several reductions into one slot in one round are applied in row order;
* may start as soon as that data, its ports and both ranks are there, whatever other ranks are doing.

So the values do not depend on timing: any execution that keeps these orders moves the same contributions and adds
them in the same order. The order itself is acyclic (it follows the rounds), so no execution can get stuck.

**Ranks are roles.** `binding` says which rank plays each role, and may be left open until the ranks arrive.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

from latecomer.schedules.chunks import Chunks
from latecomer.schedules.errors import InputError
from latecomer.schedules.faults import in_words
from latecomer.schedules.pattern import Pattern
from latecomer.schedules.transfers import Transfers

FORMAT: Final = "latecomer.schedule/1"

Collective = Literal["allreduce", "reduce_scatter", "allgather"]
MAX_RANKS: Final = 65_536
MAX_ROUNDS: Final = 1_000_000
"""More than any schedule has; keeps a damaged file from filling memory."""

PortModel = Literal["exclusive", "shared"]
"""`exclusive`: one message out and one in at a time. `shared`: concurrent messages share the port's rate."""


class Phase(BaseModel):
    """A part of the schedule: what it is for, and the last stage of arrival that takes part in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["prework", "completion", "synchronous"]
    stage: int = Field(ge=0, le=MAX_RANKS)


class Provenance(BaseModel):
    """Where a schedule comes from: enough to make it again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str
    algorithm: str
    parameters: dict[str, int | float | str | bool | None] = {}
    topology_digest: str | None = None
    arrivals_digest: str | None = None


class Certificate(BaseModel):
    """What was proven about a schedule. Rounds and times count after the last arrival.

    `proof` is the kind of proof: `round-optimal` (checked, and no one-port schedule of equal chunks has fewer
    rounds), `exhaustive` (checked, and a solver found no schedule with fewer rounds), `checked` (correct; the gap
    says how near to the bound it is).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    proof: Literal["checked", "round-optimal", "exhaustive"]
    rounds: int = Field(ge=0)
    bound_rounds: int | None = Field(ge=0)
    size_bytes: int = Field(ge=1)
    time_us: float = Field(ge=0)
    bound_us: float = Field(ge=0)
    bound_latency_us: float = Field(ge=0)
    gap: float | None = Field(ge=0)
    ring_time_us: float | None = Field(None, ge=0)
    prework_us: float | None = Field(None, ge=0)
    note: str | None = None


def _read_transfers(value: Any) -> Transfers:
    if isinstance(value, Transfers):
        return value
    if not isinstance(value, list):
        raise ValueError("should be a list of groups")
    parts = [_read_group(i, group) for i, group in enumerate(value)]
    if not parts:
        return Transfers.of(*([[]] * 8))
    return Transfers.of(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


_SINGLE = ("round", "op", "phase")
_LISTS = ("src", "dst", "chunk", "src_slot", "dst_slot")
"""The fields of a group; the slots may be left out."""


def _read_group(index: int, group: Any) -> list[Any]:
    try:
        if not isinstance(group, dict):
            raise ValueError("it should be an object with round, op, phase, src, dst and chunk")
        surplus, absent = set(group) - {*_SINGLE, *_LISTS}, {*_SINGLE, *_LISTS[:3]} - set(group)
        if surplus:
            raise ValueError(f"it has the unknown field {min(surplus)!r}")
        if absent:
            raise ValueError(f"it has no field {min(absent)!r}")
        if group["op"] not in ("copy", "reduce"):
            raise ValueError(f"op should be 'copy' or 'reduce', not {group['op']!r:.40}")
        single = {"round": group["round"], "reduce": int(group["op"] == "reduce"), "phase": group["phase"]}
        rows = {name: _numbers(name, group[name]) for name in ("src", "dst", "chunk")}
        length = len(rows["src"])
        rows |= {name: _numbers(name, group.get(name, [0] * length)) for name in ("src_slot", "dst_slot")}
        rows |= {name: np.full(length, _numbers(name, [value])[0], np.int32) for name, value in single.items()}
        if len({len(column) for column in rows.values()}) != 1:
            raise ValueError("its lists must have the same length")
    except ValueError as error:
        raise ValueError(f"group {index}: {error}") from error
    return [rows[name] for name in ("round", "src", "dst", "chunk", "reduce", "phase", "src_slot", "dst_slot")]


def _numbers(name: str, values: Any) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The list called `name`, of whole numbers below 2^31, as a column; anything else is refused, not rounded."""
    if not isinstance(values, list):
        raise ValueError(f"{name} should be a list, not {values!r:.40}")
    if not all(type(value) is int for value in values):
        raise ValueError(f"{name} holds something else than whole numbers")
    if values and not -(2**31) <= min(values) <= max(values) < 2**31:
        raise ValueError(f"{name} holds a number that is out of range")
    return np.array(values, np.int32)


def _write_transfers(transfers: Transfers) -> list[dict[str, Any]]:
    """Runs of rows that share round, operation and phase become one group."""
    if not len(transfers):
        return []
    keys = np.stack([transfers.round, transfers.reduce, transfers.phase])
    starts = np.flatnonzero(np.any(np.diff(keys, prepend=-1) != 0, axis=0)).tolist()
    groups = []
    for first, last in zip(starts, [*starts[1:], len(transfers)], strict=True):
        rows = slice(first, last)
        group: dict[str, Any] = {
            "round": int(transfers.round[first]),
            "op": "reduce" if transfers.reduce[first] else "copy",
            "phase": int(transfers.phase[first]),
        }
        group |= {name: getattr(transfers, name)[rows].tolist() for name in ("src", "dst", "chunk")}
        for name in ("src_slot", "dst_slot"):
            if getattr(transfers, name)[rows].any():
                group[name] = getattr(transfers, name)[rows].tolist()
        groups.append(group)
    return groups


TransfersField = Annotated[Transfers, BeforeValidator(_read_transfers), PlainSerializer(_write_transfers)]


class Branch(BaseModel):
    """What follows when the late rank arrives after exactly `prework_rounds` rounds of the pre-work were started."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, extra="forbid")

    prework_rounds: int = Field(ge=0)
    transfers: TransfersField


class Schedule(BaseModel):
    """See the module's text for what it means. Immutable; passes return new schedules.

    Attributes
    ----------
    ranks:
        Number of ranks, n.
    binding:
        Shape (ranks,): the rank that plays each role; the identity when a schedule is not tied to ranks.
    bind_at:
        `plan`: the binding above holds. `arrival`: roles are handed out as the ranks arrive.
    stages:
        Shape (ranks,): a role takes part only in phases of at least its stage; 0 is there from the start,
        1 waits for the first later arrival, and so on.
    branches:
        Empty for an ordinary schedule. Otherwise `transfers` is the pre-work alone and the last arrival
        decides which branch follows (`resolve`): one per number of pre-work rounds started, 0 … all.
    patterns:
        Rows of `transfers` that repeat, said shortly; the checker proves each equal to its expansion.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, extra="forbid")

    format: Literal["latecomer.schedule/1"] = FORMAT
    collective: Collective = "allreduce"
    ranks: int = Field(ge=2, le=MAX_RANKS)
    binding: tuple[int, ...]
    bind_at: Literal["plan", "arrival"] = "plan"
    ports: PortModel
    stages: tuple[int, ...]
    phases: tuple[Phase, ...] = Field(min_length=1)
    chunks: Chunks
    patterns: tuple[Pattern, ...] = ()
    provenance: Provenance
    certificate: Certificate | None = None
    transfers: TransfersField
    branches: tuple[Branch, ...] = ()

    @model_validator(mode="after")
    def _well_formed(self) -> Self:
        if sorted(self.binding) != list(range(self.ranks)):
            raise ValueError(f"binding must name each of the ranks 0 … {self.ranks - 1} once")
        if len(self.stages) != self.ranks or min(self.stages) != 0 or max(self.stages) >= self.ranks:
            raise ValueError("stages must give every role a stage below the number of ranks, and some role stage 0")
        for transfers in (self.transfers, *(b.transfers for b in self.branches)):
            self._columns_in_range(transfers)
        least = -1 if self.collective == "allreduce" else 0
        if not least <= min(self.chunks.owners) <= max(self.chunks.owners) < self.ranks:
            every = ", or -1 for every early rank" if least else ""
            raise ValueError(f"a chunk's owner must be a role 0 … {self.ranks - 1}{every}")
        for number, pattern in enumerate(self.patterns):
            if not pattern.fits(self.ranks, len(self.phases), len(self.chunks), self.transfers.rounds):
                raise ValueError(
                    f"patterns.{number} names roles, phases, chunks or rounds that the schedule does not have"
                )
        if self.branches and [b.prework_rounds for b in self.branches] != list(range(self.transfers.rounds + 1)):
            raise ValueError("branches must be one per number of pre-work rounds started, 0 … all, in order")
        return self

    def _columns_in_range(self, transfers: Transfers) -> None:
        limits = {
            "src": self.ranks,
            "dst": self.ranks,
            "chunk": len(self.chunks),
            "phase": len(self.phases),
            "round": MAX_ROUNDS,
            "src_slot": None,
            "dst_slot": None,
        }
        for name, limit in limits.items():
            column = getattr(transfers, name)
            if len(column) and (column.min() < 0 or (limit is not None and column.max() >= limit)):
                bad = column.min() if column.min() < 0 else column.max()
                raise ValueError(f"a transfer has {name} {bad}; the range is 0 … {limit - 1 if limit else 'any'}")

    # -- views ------------------------------------------------------------------------------------------------------

    @property
    def late_roles(self) -> tuple[int, ...]:
        """Roles that are not there from the start."""
        return tuple(role for role, stage in enumerate(self.stages) if stage > 0)

    @property
    def last_stage(self) -> int:
        """The stage of the last arrival."""
        return max(self.stages)

    def kinds(self) -> np.ndarray[Any, np.dtype[np.str_]]:
        """Shape (rows,): each transfer's kind of phase."""
        return np.array([phase.kind for phase in self.phases])[self.transfers.phase]

    @property
    def prework(self) -> Transfers:
        """The transfers that need not wait for the last arrival."""
        return self.transfers.where(self._stage_of_rows() < self.last_stage) if self.late_roles else Transfers.concat()

    @property
    def after_arrival(self) -> Transfers:
        """The transfers that wait for the last arrival (all of them in a synchronous schedule)."""
        return self.transfers.where(self._stage_of_rows() >= self.last_stage) if self.late_roles else self.transfers

    def _stage_of_rows(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([phase.stage for phase in self.phases])[self.transfers.phase]

    @property
    def rounds(self) -> int:
        """Number of rounds after the last arrival (of all rounds where nobody is late)."""
        return len(np.unique(self.after_arrival.round))

    def resolve(self, prework_rounds: int) -> Schedule:
        """The ordinary schedule that runs when `prework_rounds` rounds of pre-work were started before the last
        arrival.

        Raises `InputError` for a schedule without branches, or a number of rounds it does not have.
        """
        if not 0 <= prework_rounds < len(self.branches):
            raise InputError(
                f"this schedule has no branch after {prework_rounds} pre-work rounds"
                + (f"; it has 0 … {len(self.branches) - 1}" if self.branches else ": it has no branches")
            )
        done = self.transfers.where(self.transfers.round < prework_rounds)
        transfers = Transfers.concat(done, self.branches[prework_rounds].transfers)
        return self.model_copy(update={"transfers": transfers, "branches": (), "certificate": None})

    def bound_to(self, binding: Sequence[int]) -> Schedule:
        """The same schedule with role i played by rank `binding[i]`."""
        return Schedule.model_validate({**dict(self), "binding": tuple(binding), "bind_at": "plan"})

    # -- text -------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The file format: one line per field and per group of transfers; `from_json` restores it byte for byte."""
        fields = self.model_dump(mode="json")
        lines = []
        for name, value in fields.items():
            if name == "transfers":
                text = _json_lines(value)
            elif name == "branches" and value:
                text = (
                    "[\n"
                    + ",\n".join(
                        f'{{"prework_rounds": {b["prework_rounds"]}, "transfers": {_json_lines(b["transfers"])}}}'
                        for b in value
                    )
                    + "]"
                )
            else:
                text = json.dumps(value)
            lines.append(f"{json.dumps(name)}: {text}")
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str, source: str = "schedule") -> Schedule:
        """Read what `to_json` wrote. Raises `InputError` naming `source` and every field that is wrong."""
        try:
            data = json.loads(text, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{source}: not JSON, or cut off ({error})") from error
        except InputError as error:
            raise InputError(f"{source}: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else None
            raise InputError(f'{source}: not a latecomer schedule: "format" should be {FORMAT!r}, found {found!r}')
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise InputError(in_words(error, source, "schedule")) from error

    def __str__(self) -> str:
        from latecomer.schedules.table import table

        return table(self)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise InputError(f"the field {next(n for n in names if names.count(n) > 1)!r} appears twice")
    return found


def _json_lines(groups: list[dict[str, Any]]) -> str:
    return "[" + ",".join("\n " + json.dumps(group, separators=(", ", ":")) for group in groups) + "]"
