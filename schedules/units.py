"""Sizes in bytes, times in microseconds, rates in GB/s: reading and printing them.

A number without a unit is in the base unit of its kind (bytes, µs, GB/s), which is also the unit of
every field and every JSON value in latecomer.
"""

from __future__ import annotations

import re
from fractions import Fraction

from latecomer.schedules.errors import InputError

_SIZE = {"": 1, "b": 1} | {
    f"{prefix}{'i' if binary else ''}b": (1024 if binary else 1000) ** power
    for power, prefix in enumerate("kmgt", start=1)
    for binary in (False, True)
}
_TIME = {
    "": Fraction(1),
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "μs": Fraction(1),
    "ms": Fraction(1000),
    "s": Fraction(10**6),
}
# A rate is a size per second, in bytes ("GB/s") or bits ("Gbit/s", "Gb/s"); the case of b/B decides.
_RATE = re.compile(r"(?P<prefix>[kKmMgGtT]?)(?P<binary>i?)(?P<unit>B|b|bit)(?:/s|ps)")
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*")


MAX_SIZE_BYTES = 2**60
MAX_TIME_US = 1e12
"""Eleven days: later than that nobody waits."""
MIN_RATE_GBS, MAX_RATE_GBS = 1e-6, 1e9


def _split(text: str, kind: str, example: str) -> tuple[Fraction, str]:
    shown = text if len(text) <= 60 else text[:57] + "..."
    match = _NUMBER.fullmatch(text) if len(text) <= 60 else None
    if not match:
        raise InputError(f"{kind} {shown!r} is not a number with a unit; write it like {example}")
    exponent = match[1].lower().partition("e")[2]
    if exponent and abs(int(exponent)) > 40:
        raise InputError(f"{kind} {shown!r} is out of all range; write it like {example}")
    return Fraction(match[1]), match[2]


def parse_size(text: str) -> int:
    """Bytes in `text` (`1GiB`, `64MB`, `4096`), at least 1.

    Raises `InputError` for anything else, a fraction of a byte included.
    """
    number, unit = _split(text, "size", "1GiB, 64MB or 4096")
    if unit.lower() not in _SIZE:
        raise InputError(f"size {text!r} has the unknown unit {unit!r}; use B, kB, MB, GB, KiB, MiB, GiB or TiB")
    size = number * _SIZE[unit.lower()]
    if size < 1 or size.denominator != 1:
        raise InputError(f"size {text!r} must be a whole number of bytes, at least 1")
    if size > MAX_SIZE_BYTES:
        raise InputError(f"size {text!r} is more than 2^60 bytes; no message is")
    return int(size)


def parse_time(text: str) -> float:
    """Microseconds in `text` (`5ms`, `3us`, `0`), at least 0.

    Raises `InputError` for anything else.
    """
    number, unit = _split(text, "time", "5ms, 3us or 250")
    if unit.lower() not in _TIME:
        raise InputError(f"time {text!r} has the unknown unit {unit!r}; use ns, us, ms or s")
    if number < 0:
        raise InputError(f"time {text!r} is negative; times start at 0")
    if number * _TIME[unit.lower()] > MAX_TIME_US:
        raise InputError(f"time {text!r} is more than 1000000 s; nobody waits that long")
    return float(number * _TIME[unit.lower()])


def parse_rate(text: str) -> float:
    """GB/s (1e9 bytes a second, one direction) in `text` (`450GB/s`, `450GiB/s`, `400Gbit/s`, `50`), above 0.

    Raises `InputError` for anything else.
    """
    number, unit = _split(text, "rate", "450GB/s, 450GiB/s or 400Gbit/s")
    scale = Fraction(1)
    if unit:
        match = _RATE.fullmatch(unit)
        if not match:
            raise InputError(f"rate {text!r} has the unknown unit {unit!r}; use GB/s, GiB/s or Gbit/s")
        power = "kmgt".find(match["prefix"].lower()) + 1 if match["prefix"] else 0
        scale = Fraction((1024 if match["binary"] else 1000) ** power, 10**9)
        if match["unit"] != "B":
            scale /= 8
    if number <= 0:
        raise InputError(f"rate {text!r} must be above 0")
    if not MIN_RATE_GBS <= number * scale <= MAX_RATE_GBS:
        raise InputError(f"rate {text!r} is not between 1 kB/s and 1000000 TB/s")
    return float(number * scale)


def require_range(size_bytes: int, round_latency_us: float) -> None:
    """Raise `InputError` unless both are numbers that a question can be asked about."""
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or not 1 <= size_bytes <= MAX_SIZE_BYTES:
        raise InputError(f"the message must have a whole number of bytes, 1 … 2^60, not {size_bytes!r}")
    if not 0 <= round_latency_us <= MAX_TIME_US:
        raise InputError(f"the round latency must be 0 … {MAX_TIME_US:g} µs, not {round_latency_us!r}")


def format_size(size_bytes: int) -> str:
    """`size_bytes` with the largest binary unit that keeps it short: 1073741824 → `1 GiB`."""
    value, unit = Fraction(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{_short(float(value))} {unit}"


def format_size_exactly(size_bytes: int) -> str:
    """`format_size`, with the bytes where that is rounded: 1048577 → `1 MiB (1048577 bytes)`."""
    short = format_size(size_bytes)
    value, unit = short.split()
    exact = Fraction(value) * _SIZE[unit.lower()] == size_bytes
    return short if exact else f"{short} ({size_bytes} bytes)"


def format_time(time_us: float) -> str:
    """`time_us` with a unit that suits it: 2884.3 → `2.884 ms`."""
    if abs(time_us) >= 1e6:
        return f"{_short(time_us / 1e6)} s"
    if abs(time_us) >= 1e3:
        return f"{_short(time_us / 1e3)} ms"
    return f"{_short(time_us)} µs"


def format_rate(rate_gbs: float) -> str:
    """`rate_gbs` in GB/s: 450.0 → `450 GB/s`."""
    return f"{_short(rate_gbs)} GB/s"


def count(number: int, noun: str) -> str:
    """`number` of `noun`, which takes an s: `1 chunk`, `2 chunks`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _short(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
