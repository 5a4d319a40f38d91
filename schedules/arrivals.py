"""`ArrivalProfile`: when each rank is ready to take part, once or in many observed samples."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from latecomer.schedules.errors import InputError
from latecomer.schedules.faults import in_words
from latecomer.schedules.units import MAX_TIME_US, format_time, parse_time

FORMAT: Final = "latecomer.arrivals/1"
MAX_RANKS: Final = 65_536


class ArrivalProfile(BaseModel):
    """Arrival times in µs, shape (samples, ranks), kept as given. Immutable.

    Times of a sample count from 0, the moment from which the rest of the system counts too; nobody has to
    arrive at 0.

    Raises
    ------
    InputError
        A time that is negative or not a number, a sample of the wrong length, no sample at all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["latecomer.arrivals/1"] = FORMAT
    ranks: int
    samples: tuple[tuple[float, ...], ...]

    @model_validator(mode="after")
    def _well_formed(self) -> Self:
        if self.ranks < 2:
            raise InputError(f"an arrival profile needs at least 2 ranks, this one has {self.ranks}")
        if not self.samples:
            raise InputError("an arrival profile needs at least one sample: one time for every rank")
        for number, sample in enumerate(self.samples):
            where = f" in sample {number}" if len(self.samples) > 1 else ""
            if len(sample) != self.ranks:
                raise InputError(f"{len(sample)} arrival times{where}, but {self.ranks} ranks; give one for every rank")
            for rank, time_us in enumerate(sample):
                if not 0 <= time_us <= MAX_TIME_US:
                    raise InputError(f"rank {rank} arrives at {time_us} µs{where}; times are 0 … {MAX_TIME_US:g} µs")
        return self

    # -- making ------------------------------------------------------------------------------------

    @classmethod
    def of(cls, times_us: Iterable[float]) -> ArrivalProfile:
        """One sample, one time in µs for every rank."""
        sample = tuple(map(float, times_us))
        return cls(ranks=len(sample), samples=(sample,))

    @classmethod
    def synchronous(cls, ranks: int) -> ArrivalProfile:
        """All ranks arrive at 0."""
        return cls(ranks=ranks, samples=((0.0,) * ranks,))

    @classmethod
    def late(cls, ranks: int, rank: int | None, delay_us: float) -> ArrivalProfile:
        """All ranks arrive at 0, but `rank` arrives `delay_us` µs later.

        Raises `InputError` for a rank that is not there, a negative delay, and a delay without a rank.
        """
        if rank is None:
            raise InputError(f"a delay of {format_time(delay_us)} but no late rank; say which with --late RANK")
        if isinstance(rank, bool) or not isinstance(rank, int) or not isinstance(ranks, int):
            raise InputError(f"ranks are whole numbers, not {rank!r} of {ranks!r}")
        if not 0 <= rank < ranks <= MAX_RANKS:
            raise InputError(f"late rank {rank} is out of range: ranks are 0 … {ranks - 1}")
        if not 0 <= delay_us <= MAX_TIME_US:
            raise InputError(f"a delay of {delay_us} µs makes no sense; give 0 or more")
        return cls.of(float(delay_us) if r == rank else 0.0 for r in range(ranks))

    @classmethod
    def from_text(cls, text: str, ranks: int) -> ArrivalProfile:
        """One sample from `0,0,5ms,0`: times with units (µs without one), one for every rank.

        Raises `InputError` for a time that cannot be read, or too few or too many of them.
        """
        parts = re.split(r"\s*,\s*|\s+", text.strip())
        return cls(ranks=ranks, samples=(tuple(map(parse_time, parts)),))

    # -- questions ---------------------------------------------------------------------------------

    @property
    def single(self) -> tuple[float, ...]:
        """The one sample, µs per rank. Raises `InputError` when there are several."""
        if len(self.samples) != 1:
            raise InputError(
                f"the arrival profile has {len(self.samples)} samples, and this needs one; give a single one"
            )
        return self.samples[0]

    @property
    def last_us(self) -> float:
        """When the last rank arrives, µs (of a profile with one sample)."""
        return max(self.single)

    @property
    def delay_us(self) -> float:
        """From the first arrival to the last, µs (of a profile with one sample)."""
        return max(self.single) - min(self.single)

    @property
    def order(self) -> tuple[int, ...]:
        """Ranks in order of arrival, ties by rank (of a profile with one sample)."""
        return tuple(sorted(range(self.ranks), key=self.single.__getitem__))

    @cached_property
    def late_rank(self) -> int | None:
        """The only late rank: all others arrive together, before it, in every sample. None where there is no
        such rank."""
        found = {_late_rank(sample) for sample in self.samples}
        return found.pop() if len(found) == 1 else None

    @cached_property
    def is_synchronous(self) -> bool:
        """All ranks arrive together in every sample."""
        return all(min(sample) == max(sample) for sample in self.samples)

    # -- text --------------------------------------------------------------------------------------

    def __str__(self) -> str:
        if len(self.samples) > 1:
            return f"{len(self.samples)} samples of arrival times"
        if self.is_synchronous:
            return "all ranks arrive together"
        delay = format_time(self.delay_us)
        if self.late_rank is not None:
            return f"rank {self.late_rank} arrives {delay} after the others"
        return f"ranks arrive over {delay}, the last is rank {self.order[-1]}"

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the times."""
        return hashlib.sha256(json.dumps(self.samples, separators=(",", ":")).encode()).hexdigest()

    def to_json(self) -> str:
        """The file format: one line per sample; `from_json` restores it byte for byte."""
        rows = ",\n ".join(json.dumps(sample) for sample in self.samples)
        return f'{{\n"format": {json.dumps(FORMAT)},\n"ranks": {self.ranks},\n"samples": [\n {rows}\n]\n}}\n'

    @classmethod
    def from_json(cls, text: str, ranks: int | None = None, source: str = "arrivals") -> ArrivalProfile:
        """Read what `to_json` wrote, a JSON list of times, or a list of such lists; numbers are µs, strings
        have units.

        Raises `InputError` naming `source`; also where the number of ranks is not `ranks`.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{source}: not JSON, or cut off ({error})") from error
        if isinstance(data, dict):
            if data.get("format") != FORMAT:
                raise InputError(
                    f'{source}: not arrival times: "format" should be {FORMAT!r}, found {data.get("format")!r}'
                )
            data = data.get("samples")
        if not isinstance(data, list) or not data:
            raise InputError(f"{source}: expected a list of times, one for every rank, or a list of such lists")
        return cls._from_rows(data if isinstance(data[0], list) else [data], ranks, source)

    @classmethod
    def from_csv(cls, text: str, ranks: int | None = None, source: str = "arrivals") -> ArrivalProfile:
        """Read a row of times per sample, a column per rank; numbers are µs, other times have units.

        Empty lines and lines that start with `#` are skipped. Raises `InputError` naming `source`.
        """
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        try:
            rows = list(csv.reader(lines, skipinitialspace=True))
        except csv.Error as error:
            raise InputError(f"{source}: neither JSON nor rows of times ({error})") from error
        return cls._from_rows(rows, ranks, source)

    @classmethod
    def _from_rows(cls, rows: list[Any], ranks: int | None, source: str) -> ArrivalProfile:
        try:
            samples = tuple(tuple(_time_us(time) for time in _row(row)) for row in rows)
            return cls(ranks=ranks if ranks is not None else len(samples[0]) if samples else 0, samples=samples)
        except ValidationError as error:
            raise InputError(in_words(error, source, "arrivals")) from error
        except InputError as error:
            raise InputError(f"{source}: {error}") from error


def _row(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{value!r} is not a sample: a list with one time for every rank")
    return value


def _time_us(value: Any) -> float:
    if isinstance(value, str):
        return parse_time(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f'{value!r} is not a time; write it like 5000 (µs) or "5ms"')
    return float(value)


def _late_rank(sample: tuple[float, ...]) -> int | None:
    late = [rank for rank, time_us in enumerate(sample) if time_us > min(sample)]
    return late[0] if len(late) == 1 else None
