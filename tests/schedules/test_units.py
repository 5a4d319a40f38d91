"""Sizes, times and rates: what is read, what is refused, what is printed."""

from __future__ import annotations

import pytest

from latecomer.schedules.errors import InputError
from latecomer.schedules.units import (
    count,
    format_rate,
    format_size,
    format_size_exactly,
    format_time,
    parse_rate,
    parse_size,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("1GiB", 2**30), ("64MB", 64 * 10**6), ("1.5 KiB", 1536), ("2kb", 2000), ("1e3", 1000), ("1TiB", 2**40)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "-1",
        "",
        "GiB",
        "1XB",
        "0.3",
        "1 2",
        "nan",
        "inf",
        "1.0001B",
        "0x10",
        "1e400",
        "1e999999999",
        "9" * 5000,
        "1e30",
    ],
)
def test_bad_sizes(text):
    with pytest.raises(InputError, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "us"), [("5ms", 5000), ("3us", 3), ("3µs", 3), ("2 s", 2e6), ("250", 250), ("1ns", 1e-3), ("0", 0)]
)
def test_times(text, us):
    assert parse_time(text) == us


@pytest.mark.parametrize("text", ["-1ms", "five", "5 lightyears", "1:30", "", "1e400", "1e308", "1e-999999999"])
def test_bad_times(text):
    with pytest.raises(InputError, match="time"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "gbs"),
    [("450GB/s", 450), ("450GiB/s", 483.1838208), ("400Gbit/s", 50), ("400Gb/s", 50), ("50", 50), ("100MB/s", 0.1)],
)
def test_rates(text, gbs):
    assert parse_rate(text) == pytest.approx(gbs)


@pytest.mark.parametrize("text", ["0", "-1GB/s", "fast", "1GB", "1 GB/h", "", "1e300", "1e-300", "1e400"])
def test_bad_rates(text):
    with pytest.raises(InputError, match="rate"):
        parse_rate(text)


def test_printing():
    assert format_size(2**30) == "1 GiB"
    assert format_size(1000) == "1000 B"
    assert format_time(2884.3) == "2.884 ms"
    assert format_time(3) == "3 µs"
    assert format_time(2.5e6) == "2.5 s"
    assert format_rate(450.0) == "450 GB/s"


def test_a_size_that_is_rounded_says_its_bytes() -> None:
    assert format_size_exactly(2**20) == "1 MiB"
    assert format_size_exactly(1536) == "1.5 KiB"
    assert format_size_exactly(2**20 + 1) == "1 MiB (1048577 bytes)"
    assert format_size_exactly(0) == "0 B"


def test_one_has_no_s() -> None:
    assert [count(n, "chunk") for n in (0, 1, 2)] == ["0 chunks", "1 chunk", "2 chunks"]
