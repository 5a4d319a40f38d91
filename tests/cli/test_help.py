from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from click.testing import Result

from latecomer import __version__
from latecomer.cli import COMMANDS

Run = Callable[..., Result]

SLOW = ["numpy", "pydantic", "networkx", "ortools", "scipy", "jinja2", "torch"]


def test_help_names_every_command(run: Run) -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name}" in result.output
    assert "Exit codes: 0 yes, 1 the answer is no, 2 bad usage" in result.output
    assert run("-h").output == result.output
    assert run("--version").output.split()[-1] == __version__


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command(name: str, run: Run) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert f"Usage: cli {name}" in result.output


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_imports_nothing_slow(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom latecomer.cli import cli\n"
        f"try: cli({arguments!r})\nexcept SystemExit: pass\n"
        f"print([name for name in {SLOW!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_is_quick() -> None:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "latecomer", "--help"], capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.3


def test_unknown_command(refused: Callable[..., str]) -> None:
    assert refused("bound") == "error: no command is called 'bound'; did you mean bounds?\nsee cli --help\n"
    assert "there are topology, synth, " in refused("xyzzy")
    assert "No such option" in refused("bounds", "--sze", "3")


def test_missing_flags(refused: Callable[..., str]) -> None:
    assert "Missing option '--topology'" in refused("bounds", "--size", "1GiB")
    assert "Missing option '--size'" in refused("bounds", "--topology", "dgx-h100")
    assert "see cli bounds --help" in refused("bounds", "--topology")
    assert "Missing argument 'FILE'" in refused("check")
