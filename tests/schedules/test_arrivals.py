from __future__ import annotations

import re

import pytest

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.errors import InputError


def test_one_late_rank() -> None:
    profile = ArrivalProfile.late(4, 2, 5000.0)
    assert profile.single == (0.0, 0.0, 5000.0, 0.0)
    assert (profile.last_us, profile.delay_us, profile.late_rank) == (5000.0, 5000.0, 2)
    assert profile.order == (0, 1, 3, 2)
    assert not profile.is_synchronous
    assert profile == ArrivalProfile.from_text("0, 0, 5ms, 0", 4)


def test_synchronous() -> None:
    profile = ArrivalProfile.synchronous(3)
    assert profile.is_synchronous
    assert profile.late_rank is None
    assert ArrivalProfile.of([7, 7]).is_synchronous


def test_times_are_kept_as_given() -> None:
    profile = ArrivalProfile.from_text("10 20us 0.03ms", 3)
    assert profile.single == (10.0, 20.0, 30.0)
    assert (profile.late_rank, profile.delay_us, profile.last_us) == (None, 20.0, 30.0)


def test_late_rank_of_several_samples() -> None:
    same = ArrivalProfile(ranks=3, samples=((0, 0, 5), (1, 1, 9)))
    assert same.late_rank == 2
    assert ArrivalProfile(ranks=3, samples=((0, 0, 5), (9, 1, 1))).late_rank is None
    with pytest.raises(InputError, match="has 2 samples, and this needs one"):
        _ = same.single


def test_json() -> None:
    profile = ArrivalProfile(ranks=3, samples=((0, 0, 5), (1, 1, 9)))
    assert ArrivalProfile.from_json(profile.to_json()) == profile
    assert ArrivalProfile.from_json(profile.to_json()).to_json() == profile.to_json()
    assert ArrivalProfile.from_json('[[0, 0, "5us"], [1, 1, 9]]') == profile
    assert ArrivalProfile.from_json("[0, 5]").single == (0.0, 5.0)
    assert profile.digest == ArrivalProfile.from_json(profile.to_json()).digest != ArrivalProfile.synchronous(3).digest


def test_csv() -> None:
    profile = ArrivalProfile.from_csv("# r0, r1, r2\n0,0,5us\r\n\n1, 1, 9\n", 3)
    assert profile == ArrivalProfile(ranks=3, samples=((0, 0, 5), (1, 1, 9)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 9, 1.0), "late rank 9 is out of range: ranks are 0 … 7"),
        ((8, -1, 1.0), "late rank -1 is out of range"),
        ((8, 1, -1.0), "a delay of -1.0 µs makes no sense"),
        ((8, 1, float("nan")), "a delay of nan µs makes no sense"),
        ((8, None, 5000.0), "a delay of 5 ms but no late rank; say which with --late RANK"),
    ],
)
def test_bad_late(arguments: tuple[int, int | None, float], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        ArrivalProfile.late(*arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,0,5ms", "3 arrival times, but 4 ranks; give one for every rank"),
        ("0,0,-5ms,0", "time '-5ms' is negative"),
        ("0,0,5parsec,0", "unknown unit 'parsec'"),
        ("0,,5,0", "time '' is not a number"),
    ],
)
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        ArrivalProfile.from_text(text, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[0, 0", "a.json: not JSON, or cut off"),
        ("[]", "a.json: expected a list of times"),
        ("3", "a.json: expected a list of times"),
        (
            '{"format": "other"}',
            "a.json: not arrival times: \"format\" should be 'latecomer.arrivals/1', found 'other'",
        ),
        ("[0, true]", "a.json: True is not a time"),
        ("[[0, 0], 3]", "a.json: 3 is not a sample"),
        ("[0, NaN]", "a.json: rank 1 arrives at nan µs; times are 0 … 1e+12 µs"),
        ("[[0, 0], [0, -1]]", "a.json: rank 1 arrives at -1.0 µs in sample 1"),
        ("[[0, 0], [0, 0, 0]]", "a.json: 3 arrival times in sample 1, but 2 ranks"),
    ],
)
def test_bad_json(text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        ArrivalProfile.from_json(text, 2, "a.json")


def test_bad_csv() -> None:
    with pytest.raises(InputError, match=r"a.csv: time 'rank0' is not a number"):
        ArrivalProfile.from_csv("rank0,rank1\n0,5\n", 2, "a.csv")
    with pytest.raises(InputError, match=r"a.csv: an arrival profile needs at least one sample"):
        ArrivalProfile.from_csv("# nothing\n", 2, "a.csv")
    with pytest.raises(InputError, match="at least 2 ranks"):
        ArrivalProfile.of([0.0])
