"""Files of measurements: CSV or JSON, by the suffix; read back for `latecomer calibrate`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latecomer.schedules.errors import InputError

COLUMNS = (
    "algorithm", "ranks", "size_bytes", "late", "delay_us", "seed", "chunks", "runs", "time_us", "time_min_us",
    "time_max_us", "own_us", "busbw_gbs", "model_us", "cut", "rounds",
    "messages", "volume",
)  # fmt: skip
"""Of a CSV, in order; JSON has `times_us`, the single runs, too. Times in µs, rates in GB/s."""
FORMAT = "latecomer.bench/1"


def write_rows(path: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write `rows` to `path`. Raises `InputError` for another suffix, and where it cannot be written."""
    text = to_csv(rows) if path.endswith(".csv") else to_json(rows) if path.endswith(".json") else None
    if text is None:
        raise InputError(f"{path}: measurements are written as .csv or .json")
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error}") from error


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """With a header; an unknown value is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_json(rows: Sequence[dict[str, Any]]) -> str:
    """One object; every row an object."""
    return json.dumps({"format": FORMAT, "rows": list(rows)}, indent=1) + "\n"


def read_rows(path: str) -> list[dict[str, Any]]:
    """What `write_rows` wrote, or a CSV with at least its columns of numbers. Raises `InputError`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if text.lstrip().startswith(("{", "[")):
        return _from_json(text, path)
    try:
        return [dict(row) for row in csv.DictReader(io.StringIO(text))]
    except csv.Error as error:
        raise InputError(f"{path}: not the CSV of `latecomer bench` ({error})") from error


def _from_json(text: str, path: str) -> list[dict[str, Any]]:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not the JSON of `latecomer bench` ({error})") from error
    rows = read.get("rows") if isinstance(read, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: not the JSON of `latecomer bench`, an object with a list of objects as rows")
    return rows
