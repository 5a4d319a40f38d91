from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from latecomer.schedules.topology import Topology
from latecomer.synth.sources.spec import load_topology

Run = Callable[..., Result]

TOPO = (
    "\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\tX\tNV18\tNV18\t0-3\nGPU1\tNV18\tX\tNV18\t0-3\nGPU2\tNV18\tNV18\tX\t0-3\n"
)


@pytest.mark.parametrize("spec", ["dgx-v100", "dgx-h100", "mi300x"])
def test_presets(spec: str, run: Run, golden: Callable[[str, str], None]) -> None:
    result = run("topology", spec)
    assert result.exit_code == 0
    assert result.stderr == ""
    golden(f"{spec}.txt", result.stdout)


def test_nvidia_smi_from_a_file_and_from_stdin(run: Run, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    (tmp_path / "topo.txt").write_text(TOPO)
    result = run("topology", "topo.txt")
    assert result.stderr.startswith("warning: the text does not name the GPU: 25 GB/s per NVLink")
    golden("topo.txt", result.stdout)
    named = run("topology", "-", "--gpu", "B200", stdin=TOPO)
    assert named.stderr == ""
    assert "900 GB/s per port" in named.stdout
    assert "latecomer synth --topology topo.txt --gpu B200 --late RANK" in named.stdout
    rated = run("topology", "topo.txt", "--link-rate", "26.5GB/s", "--alpha", "1us")
    assert "477 GB/s per port" in rated.stdout
    assert "α 1 µs" in rated.stdout


def test_json_is_the_topology_and_nothing_else(run: Run, tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(TOPO)
    result = run("topology", "topo.txt", "--json")
    topology = Topology.from_json(result.stdout)
    assert topology.ranks == 3
    (tmp_path / "again.json").write_text(result.stdout, encoding="utf-8")
    assert load_topology("again.json") == topology
    assert run("topology", "again.json", "--json").stdout == result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dgx-h10"], "did you mean dgx-h100?"),
        (["."], ". is a directory; name a file in it"),
        (["junk"], "junk is not a text file"),
        (["cut.json"], "cut.json: not JSON, or cut off"),
        (["empty"], "empty is empty"),
        (["topo.txt", "--gpu", "H10"], "GPU model 'H10' is not known; did you mean H100?"),
        (["topo.txt", "--link-rate", "fast"], "'--link-rate': rate 'fast' is not a number"),
        (["topo.txt", "--alpha", "-1us"], "time '-1us' is negative"),
        (["dgx-h100", "--gpu", "H100"], "dgx-h100 states its own rates"),
        (["-"], "standard input is empty"),
    ],
)
def test_bad_input(arguments: list[str], message: str, refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"\x7fELF\xff\xfe\x00\x01")
    (tmp_path / "cut.json").write_text(load_topology("dgx-h100").to_json()[:200])
    (tmp_path / "empty").touch()
    (tmp_path / "topo.txt").write_text(TOPO)
    assert message in refused("topology", *arguments, stdin="")
