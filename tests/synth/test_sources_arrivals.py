from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.errors import InputError
from latecomer.synth.sources.arrivals import load_arrivals

LATE = ArrivalProfile.late(4, 2, 5000.0)


def test_text() -> None:
    assert load_arrivals("0,0,5ms,0", 4) == LATE


@pytest.mark.parametrize(
    "content", ['[0, 0, "5ms", 0]', LATE.to_json(), "0,0,5000,0\n", "\ufeff0,0,5ms,0\r\n"]
)
def test_file(content: str, tmp_path: Path) -> None:
    path = tmp_path / "arrivals"
    path.write_bytes(content.encode())
    assert load_arrivals(str(path), 4) == LATE
    assert load_arrivals("-", 4, stdin=io.BytesIO(content.encode())) == LATE


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nowhere.csv", "'nowhere.csv' is neither a file nor a list of times"),
        ("0,5ms", "2 arrival times, but 4 ranks"),
        (".", ". is a directory"),
    ],
)
def test_bad(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        load_arrivals(spec, 4)


def test_wrong_number_of_ranks_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[0, 1, 2]")
    with pytest.raises(InputError, match=r"a\.json: 3 arrival times, but 4 ranks"):
        load_arrivals(str(path), 4)
    with pytest.raises(InputError, match="standard input is empty"):
        load_arrivals("-", 4, stdin=io.StringIO(""))
