"""What all tests share: golden files, and the public data that a full workspace has beside the repository."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("shared machine", deadline=None)  # a busy machine is not a fault
settings.load_profile("shared machine")

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite golden files with what the tests produce"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: `text` must equal the file golden/<test module>/<name> beside the test.

    `--update-golden` writes the file instead; read the difference before it is committed.
    """

    def compare(name: str, text: str) -> None:
        path = request.path.parent / "golden" / request.path.stem / name
        shown = path.relative_to(ROOT)
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            return
        if not path.exists():
            pytest.fail(f"{shown} is missing; run pytest --update-golden, read the file, and add it")
        stored = path.read_bytes().decode()
        if stored != text:
            lines = difflib.unified_diff(
                stored.splitlines(), text.splitlines(), str(shown), "now", lineterm=""
            )
            difference = "\n".join(list(lines)[:60])
            pytest.fail(f"{shown} differs; if that is intended, run pytest --update-golden\n{difference}")

    return compare


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """`shared_data(folder)`: a folder of the public data beside the repository; skips the test without it."""

    def find(folder: str) -> Path:
        path = ROOT.parent / "shared" / "data" / folder
        if not path.is_dir():
            pytest.skip(
                f"no ../shared/data/{folder} beside the repository (public example files)"
            )
        return path

    return find
