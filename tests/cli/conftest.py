"""A runner of the command line, and a small schedule on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from latecomer.cli import cli
from latecomer.synth.algorithms import ring

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("bounds", "--json", …)` in an empty directory; a traceback fails the test."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(cli, list(arguments), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def refused(run: Run, tmp_path: Path) -> Callable[..., str]:
    """Runs what must fail with exit code 2, one message and no file made; returns the message."""

    def invoke(*arguments: str, stdin: str | bytes | None = None) -> str:
        before = sorted(tmp_path.rglob("*"))
        result = run(*arguments, stdin=stdin)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        assert result.stderr.count("error: ") == 1
        assert "Traceback" not in result.stderr
        assert sorted(tmp_path.rglob("*")) == before
        return str(result.stderr)

    return invoke


@pytest.fixture
def ring_file(tmp_path: Path) -> str:
    """A correct schedule for four ranks, in a file."""
    path = tmp_path / "ring.json"
    path.write_text(ring.schedule(4).to_json(), encoding="utf-8")
    return "ring.json"
