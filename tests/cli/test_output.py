from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from latecomer.cli.output import table, working, write_file
from latecomer.schedules.errors import InputError


def test_write_file_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old and longer")
    write_file(str(path), "α\n")
    assert path.read_bytes() == "α\n".encode()
    assert os.listdir(tmp_path) == ["plan.json"]


def test_write_file_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "plan.json")
    write_file(str(tmp_path / "link"), "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "plan.json").read_text() == "new"


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match=r"cannot write .*plan\.json: No space left on device"):
        write_file(str(path), "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory; name a file in it"):
        write_file(str(tmp_path), "x")
    with pytest.raises(InputError, match=r"cannot write .*: No such file or directory"):
        write_file(str(tmp_path / "nowhere" / "plan.json"), "x")


def test_a_device_stays_a_device() -> None:
    write_file(os.devnull, "x")
    assert not os.path.isfile(os.devnull)


def test_table() -> None:
    assert table(("a", "bb"), [("long", "1"), ("x", "")]) == "a     bb\nlong   1\nx"


def test_working_is_silent_unless_a_person_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    said = "\r\x1b[Kproving … \r\x1b[Kproving … ring\r\x1b[K"
    for stream, expected in ((io.StringIO(), ""), (Terminal(), said)):
        monkeypatch.setattr(sys, "stderr", stream)
        with working("proving") as progress:
            progress("ring")
        assert stream.getvalue() == expected


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """Far more output than a pipe holds, into a pipe that nobody reads."""
    code = (
        "import click\nfrom latecomer import cli\n"
        "@click.command()\ndef command():\n    for _ in range(100000): click.echo('x' * 80)\n"
        "import latecomer.cli.show\nlatecomer.cli.show.command = command\n"
        "cli.main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "show"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=30) == 141
    assert stderr == b""


def test_a_terminal_without_greek(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(
        [sys.executable, "-m", "latecomer", "topology", "dgx-h100"], capture_output=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0
    assert b"\\u03b1 3 \xb5s" in done.stdout
