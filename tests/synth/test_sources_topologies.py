"""Presets, `switch:`, `nvidia-smi topo -m` and the door to all of them. The texts are made up here."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latecomer.schedules.errors import InputError, LatecomerError, TopologyError
from latecomer.schedules.topology import Topology
from latecomer.synth.sources.nvidia_smi import read_nvidia_smi
from latecomer.synth.sources.presets import PRESETS, preset
from latecomer.synth.sources.spec import load_topology


def text_of(relations: list[list[str]], *, nics: int = 0, separator: str = "\t", names: list[str] | None = None) -> str:
    """As nvidia-smi would print `relations`, with affinities in its various spellings."""
    names = names or [f"GPU{i}" for i in range(len(relations))]
    devices = names + [f"NIC{i}" for i in range(nics)]
    lines = [separator.join(["", *devices, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for i, row in enumerate(relations):
        lines.append(separator.join([names[i], *row, *["SYS"] * nics, "0-3,8-11", "0,3-5", "N/A" if i % 2 else "12"]))
    for i in range(nics):
        cells = ["X" if i == j else "PIX" for j in range(nics)]
        lines.append(separator.join([f"NIC{i}", *["SYS"] * len(names), *cells]))
    legend = ["", "Legend:", "", "  X    = Self", "  NV#  = a bonded set of # NVLinks", "", "NIC Legend:", ""]
    return "\n".join([*lines, *legend, *(f"  NIC{i}: mlx5_{i}" for i in range(nics))]) + "\n"


def uniform(n: int, relation: str) -> list[list[str]]:
    return [["X" if i == j else relation for j in range(n)] for i in range(n)]


def groups(n: int, *levels: tuple[int, str], far: str) -> list[list[str]]:
    """Ranks in the same block of `size` have that level's relation, smallest blocks first."""

    def relation(a: int, b: int) -> str:
        return next((name for size, name in levels if a // size == b // size), far)

    return [["X" if a == b else relation(a, b) for b in range(n)] for a in range(n)]


# -- presets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str, golden: Callable[[str, str], None]) -> None:
    topology = preset(name)
    assert topology.name == name
    assert topology.ports == "shared"
    assert topology.alpha_us == 3.0
    assert topology.source
    if name != "gb200-nvl72":
        golden(f"{name}.json", topology.to_json())


def test_preset_rates() -> None:
    rates = {name: preset(name).out_gbs(0) for name in PRESETS}
    assert rates == {
        "dgx-v100": 150.0, "dgx-a100": 300.0, "dgx-h100": 450.0, "dgx-b200": 900.0, "mi300x": 448.0,
        "gb200-nvl72": 900.0,
    }  # fmt: skip
    assert preset("gb200-nvl72").ranks == 72
    assert not preset("dgx-v100").routable
    assert preset("mi300x").full_mesh


def test_switch() -> None:
    topology = load_topology("switch:8@450GiB/s,1.5us,exclusive")
    assert topology.ranks == 8
    assert topology.ports == "exclusive"
    assert topology.alpha_us == 1.5
    assert topology.out_gbs(0) == pytest.approx(483.18, abs=0.01)
    assert load_topology("switch:2@400Gbit/s,exclusive").alpha_us == 3.0
    assert load_topology("switch:2@400Gbit/s", alpha_us=9.0).alpha_us == 9.0


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("switch:8", "'switch:8' is not a switch; write it like switch:8@450GB/s"),
        ("switch:@5", "'' is not a number of GPUs"),
        ("switch:-3@5", "'-3' is not a number of GPUs"),
        ("switch:1@5", "at least 2 GPUs"),
        ("switch:99999999@5", "more than 65536 GPUs"),
        ("switch:8@fast", "rate 'fast' is not a number"),
        ("switch:8@0GB/s", "must be above 0"),
        ("switch:8@5GB/s,soon", "time 'soon' is not a number"),
        ("switch:8@5GB/s,3us,4us", "after the rate may come a latency and the word exclusive"),
        ("switch8", "'switch8' is not a topology; a switch is written like"),
        ("dgx-h10", "'dgx-h10' is neither a preset nor a file; did you mean dgx-h100?"),
        ("elephant", "'elephant' is neither a preset nor a file; Presets are dgx-v100"),
        ("", "'' is neither a preset nor a file"),
        ("nowhere/topo.txt", "no such file: nowhere/topo.txt"),
        ("x" * 5000, "is neither a preset nor a file"),
    ],
)
def test_bad_spec(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        load_topology(spec)


# -- nvidia-smi ------------------------------------------------------------------------------------


def test_nvswitch_is_inferred() -> None:
    topology = read_nvidia_smi(text_of(uniform(8, "NV18"), nics=2))
    assert topology.any_to_any
    assert topology.switches == ("nvswitch",)
    assert topology.out_gbs(0) == 450.0
    assert topology.warnings == (
        "the text does not name the GPU: 25 GB/s per NVLink and direction is assumed (V100 to H200 have it, "
        "B200 has twice that); say --gpu MODEL or --link-rate RATE",
    )
    assert topology.notes == (
        "network adapters are left out: NIC0, NIC1",
        "NV18 between all 8 GPUs is more than a GPU has, so they share an NVSwitch: 450 GB/s per GPU and direction",
    )


@pytest.mark.parametrize(("gpu", "rate"), [("H100", 450.0), ("b200", 900.0), ("NVIDIA H200 141GB HBM3e", 450.0)])
def test_gpu_model_decides_the_rate(gpu: str, rate: float) -> None:
    topology = read_nvidia_smi(text_of(uniform(8, "NV18")), gpu=gpu)
    assert topology.out_gbs(0) == rate
    assert not topology.warnings


def test_link_rate_decides_the_rate() -> None:
    topology = read_nvidia_smi(text_of(uniform(8, "NV18")), link_rate_gbs=26.5)
    assert topology.out_gbs(0) == 477.0
    assert not topology.warnings
    assert topology.source == "as given: 26.5 GB/s per link and direction"


def test_direct_mesh_when_the_links_suffice() -> None:
    topology = read_nvidia_smi(text_of(uniform(4, "NV6")))
    assert topology.full_mesh
    assert topology.pair_gbs(0, 1) == 150.0
    # an A100 has 12 links: 3 × 6 must go through a switch
    assert read_nvidia_smi(text_of(uniform(4, "NV6")), gpu="A100").any_to_any
    assert read_nvidia_smi(text_of(uniform(2, "NV18"))).switches == ()


def test_cube_mesh_leaves_pcie_out_and_names_the_pairs() -> None:
    cube = preset("dgx-v100")
    k = {(link.src, link.dst): int(link.bandwidth_gbs / 25) for link in cube.links}
    relations = [["X" if a == b else f"NV{k[a, b]}" if (a, b) in k else "SYS" for b in range(8)] for a in range(8)]
    topology = read_nvidia_smi(text_of(relations, nics=1), gpu="V100")
    assert topology.digest == cube.digest
    assert topology.warnings[0].startswith("12 pairs have no NVLink and reach each other through another GPU only")
    assert "GPU0–GPU5, GPU0–GPU6" in topology.warnings[0]


def test_islands_over_pcie() -> None:
    topology = read_nvidia_smi(text_of(groups(8, (2, "NV4"), (4, "NODE"), far="SYS")))
    assert topology.routable
    assert topology.pair_gbs(0, 1) == 56.25
    assert topology.pair_gbs(0, 2) == 31.5
    assert topology.pair_gbs(0, 4) == 16.0
    assert topology.switches == ("numa0", "numa1", "sockets")
    assert len(topology.warnings) == 3
    assert "4 NVLink islands, joined by PCIe" in topology.notes


def test_islands_with_switches() -> None:
    topology = read_nvidia_smi(text_of(groups(8, (4, "NV12"), far="SYS")), gpu="A100")
    assert topology.switches == ("nvswitch0", "nvswitch1", "sockets")
    assert topology.pair_gbs(0, 3) == 300.0


def test_pcie_tree() -> None:
    relations = groups(8, (2, "PIX"), (4, "PHB"), far="SYS")
    topology = read_nvidia_smi(text_of(relations), gpu="T4")
    assert topology.switches == ("pcie0", "pcie1", "pcie2", "pcie3", "host0", "host1", "sockets")
    assert topology.routable
    assert not topology.any_to_any
    assert topology.pair_gbs(0, 2) == 15.75
    assert topology.warnings == (
        "the rate of PCIe is assumed: 15.75 GB/s per direction, generation 3 x16",
        "the rate between CPU sockets is assumed: 16 GB/s per direction",
    )
    assert read_nvidia_smi(text_of(relations), link_rate_gbs=12.0).pair_gbs(0, 1) == 12.0


def test_pcie_levels_nest() -> None:
    topology = read_nvidia_smi(text_of(groups(16, (2, "PIX"), (4, "PXB"), (8, "NODE"), far="SYS")), gpu="L40S")
    hops = {other: len(topology.route(0, other)) for other in (1, 2, 4, 8)}
    assert hops == {1: 2, 2: 4, 4: 6, 8: 8}
    assert topology.pair_gbs(0, 4) == 31.5
    up = {(link.src, link.dst): link.bandwidth_gbs for link in topology.links}
    assert up["pcie-upper0", "numa0"] == 31.5
    assert up["numa0", "sockets"] == 16.0


def test_one_host_bridge_is_a_switch() -> None:
    topology = read_nvidia_smi(text_of(uniform(4, "NODE")))
    assert topology.any_to_any
    assert topology.warnings == (
        "the rate of PCIe is assumed: 31.5 GB/s per direction, generation 4 x16; say --gpu MODEL or --link-rate RATE",
    )


def test_a_lone_gpu_on_its_socket() -> None:
    relations = [["X" if a == b else "SYS" if 0 in (a, b) else "NODE" for b in range(4)] for a in range(4)]
    topology = read_nvidia_smi(text_of(relations))
    assert len(topology.route(0, 1)) == 3
    assert topology.pair_gbs(0, 1) == 16.0


def test_gpus_are_ranked_in_the_order_listed() -> None:
    topology = read_nvidia_smi(text_of(uniform(3, "NV18"), names=["GPU4", "GPU5", "GPU7"]))
    assert topology.notes[0] == "ranks are numbered in the order listed: rank 0 is GPU4, rank 1 is GPU5, rank 2 is GPU7"


def test_old_spelling() -> None:
    assert read_nvidia_smi(text_of(uniform(2, "SOC"))).switches == ("sockets",)


BOX = text_of(uniform(4, "NV18"), nics=1)


@pytest.mark.parametrize(
    "text",
    [
        BOX.replace("\t", "    "),
        BOX.replace("\t", "  ").replace("\n", "\r\n"),
        "\ufeff" + BOX,
        "\x1b[4m\t" + BOX.lstrip("\t").replace("GPU NUMA ID", "GPU NUMA ID\x1b[0m"),
        BOX.replace("GPU0\tGPU1", "\x1b[4mGPU0\tGPU1", 1).replace("Affinity\tGPU", "Affinity\x1b[0m\tGPU"),
        "$ nvidia-smi topo -m\n" + BOX,
        BOX.replace("NIC0", "mlx5_bond_0"),
        BOX.replace("\tGPU NUMA ID", ""),
        BOX.replace("\tGPU NUMA ID", "").replace("\tNUMA Affinity", ""),
        BOX.split("Legend")[0],
        "\n".join("    " + line + "   " for line in BOX.splitlines()),
    ],
    ids=[
        "spaces",
        "crlf",
        "bom",
        "escapes",
        "escapes-inside",
        "prompt",
        "mlx5",
        "no-gpu-numa",
        "old",
        "bare",
        "indented",
    ],
)
def test_every_dress_of_the_same_text(text: str, tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_bytes(text.encode())
    topology = load_topology(str(path), gpu="H100")
    assert topology.out_gbs(0) == 450.0
    assert topology.any_to_any
    assert topology.ranks == 4
    assert load_topology("-", gpu="H100", stdin=io.StringIO(text)).digest == topology.digest
    path.write_bytes(text.removeprefix("\ufeff").encode("utf-16"))
    assert load_topology(str(path), gpu="H100").digest == topology.digest


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("GPU3\tNIC0", "GPU3NIC0", "topo.txt:1: 'GPU3NIC0' is two columns run together"),
        ("NIC0\tCPU ", "NIC0CPU ", "topo.txt:1: 'NIC0CPU' is two columns run together"),
        (
            "NV18\tSYS\t0-3",
            "NV180-3",
            "topo.txt:2: GPU0 to GPU3: 'NV180-3,8-11' is not a connection (columns that ran together?)",
        ),
        (
            "NV18\tSYS",
            "NV180",
            "topo.txt:2: GPU0 to GPU3: 'NV180' is not a connection (columns that ran together?)",
        ),
        (
            "NV18\tSYS",
            "NV81\tSYS",
            "topo.txt:2: GPU0 to GPU3: 'NV81' would be 81 NVLinks, and no GPU has as many",
        ),
        (
            "X\tNV18\tNV18\tNV18\tSYS",
            "X\tNV18\tNV18\tNV12\tSYS",
            "GPU3 to GPU0 is NV18 but GPU0 to GPU3 is NV12",
        ),
        (
            "X\tNV18\tNV18\tNV18\tSYS",
            "X\tNV18\tX\tNV18\tSYS",
            "topo.txt:2: GPU0 to GPU2 is 'X'; X belongs where",
        ),
        (
            "X\tNV18\tNV18\tNV18\tSYS",
            "X\tOK\tOK\tOK\tSYS",
            "topo.txt:2: GPU0 to GPU1: 'OK' is not a connection; expected",
        ),
        ("GPU2\tNV18", "GPU1\tNV18", "topo.txt:4: GPU1 has a second row"),
        ("GPU2\tNV18", "GPU9\tNV18", "topo.txt:4: row 'GPU9' has no column of that name"),
        ("GPU1\tGPU2", "GPU1\tGPU1", "topo.txt:1: GPU1 has two columns"),
    ],
)
def test_damaged_text_is_refused(old: str, new: str, message: str) -> None:
    assert old in BOX
    with pytest.raises(TopologyError, match=re.escape(message)):
        read_nvidia_smi(BOX.replace(old, new, 1), "topo.txt")


def test_cut_off_text_is_refused() -> None:
    lines = BOX.splitlines()
    with pytest.raises(TopologyError, match=r"cut off: GPU3 has a column but no row; paste all of"):
        read_nvidia_smi("\n".join(lines[:4]))
    with pytest.raises(TopologyError, match=r"cut off: the row of GPU3 has 2 of 5 connections"):
        read_nvidia_smi("\n".join([*lines[:4], "GPU3\tNV18\tNV18"]))
    with pytest.raises(TopologyError, match="no line with GPU0 GPU1"):
        read_nvidia_smi("\n".join(lines[1:]))


def test_one_gpu() -> None:
    with pytest.raises(TopologyError, match="only GPU0 is listed; an AllReduce needs at least 2 GPUs"):
        read_nvidia_smi("\tGPU0\tCPU Affinity\nGPU0\tX\t0-3\n")


def test_models_that_do_not_fit() -> None:
    with pytest.raises(TopologyError, match="NV18 between two GPUs, but A100 has 12 NVLinks; check --gpu"):
        read_nvidia_smi(BOX, gpu="A100")
    with pytest.raises(TopologyError, match="but L40S has no NVLinks"):
        read_nvidia_smi(BOX, gpu="L40S")
    with pytest.raises(InputError, match=r"GPU model 'H10' is not known; did you mean H100\? Known are P100"):
        read_nvidia_smi(BOX, gpu="H10")
    with pytest.raises(InputError, match="say the rate of one link with --link-rate"):
        read_nvidia_smi(BOX, gpu="Voodoo 2")


def test_more_links_than_a_gpu_has_is_a_warning() -> None:
    relations = uniform(4, "NV12")
    relations[0][1] = relations[1][0] = "NV6"
    warnings = read_nvidia_smi(text_of(relations)).warnings
    assert any("a GPU uses 36 NVLinks, more than 18" in warning for warning in warnings)


# -- files -----------------------------------------------------------------------------------------


def test_json_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    topology = load_topology("switch:4@50GB/s")
    path.write_text(topology.to_json(), encoding="utf-8")
    assert load_topology(str(path)) == topology
    with pytest.raises(InputError, match="--gpu and --link-rate are for the text of `nvidia-smi topo -m`"):
        load_topology(str(path), gpu="H100")
    with pytest.raises(InputError, match="dgx-h100 states its own rates"):
        load_topology("dgx-h100", link_rate_gbs=3.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\x7fELF\x02\x01\x01\x00\x00\xff\xfe", "is not a text file"),
        (b"abc\0def", "is not a text file"),
        (b'{"format": "latecomer.topology/1", "ranks": 8, "li', "not JSON, or cut off"),
        (b'{"format": "latecomer.schedule/1"}', "found 'latecomer.schedule/1'"),
        (b"<system version='1'><cpu/></system>", "this is an NCCL topology XML, which is not supported yet"),
        (
            b"<!-- x --><system version='2'><cpu><pci><gpu gcn='942'/></pci></cpu></system>",
            "this is an RCCL topology XML",
        ),
        (b"<algo name='x' proto='Simple'></algo>", "this is an MSCCL program, not a topology"),
        (
            b"==== ROCm System Management Interface ====\n GPU0 GPU1\nGPU0 0 15\nGPU1 15 0\n",
            "this is the text of rocm-smi",
        ),
        (b"hello world\n", "no topology found; give the text of `nvidia-smi topo -m`"),
    ],
)
def test_files_that_are_something_else(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(message)):
        load_topology(str(path))


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory; name a file in it"):
        load_topology(str(tmp_path))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_text_is_worse_than_an_error(data: st.DataObject) -> None:
    """Words dropped, doubled, glued or replaced: read, or refused with a message, never anything else."""
    words = re.split(r"(\s+)", BOX)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(words) - 1))
        words[place] = data.draw(
            st.sampled_from(
                ["", "\n", "X", "NV4", "NV0", "SYS", "PIX", "GPU0", "GPU9", "\t", words[place] * 2, "é", "-1"]
            )
        )
    with contextlib.suppress(LatecomerError):  # a refusal; what it says is tested above
        assert 2 <= read_nvidia_smi("".join(words)).ranks <= 5


LACKING = {
    "nvsmi_gb200-4_6nic_excerpt.txt": "cut off: GPU3 has a column but no row",
    "nvsmi_a100-8_runtogether_excerpt.txt": "run together",
    "README.tsv": "no topology found",
    "nccl-xml": "NCCL topology XML, which is not supported yet",
    "rccl-xml": "RCCL topology XML, which is not supported yet",
    "rocmsmi": "rocm-smi, which is not supported yet",
}


def test_public_examples_parse_or_say_what_they_lack(shared_data: Callable[[str], Path]) -> None:
    files = sorted(shared_data("topologies").iterdir())
    assert len(files) >= 25
    for path in files:
        lacking = [message for name, message in LACKING.items() if path.name.startswith(name)]
        if lacking:
            with pytest.raises(TopologyError, match=lacking[0]):
                load_topology(str(path))
        else:
            topology = load_topology(str(path))
            assert topology.ranks == int(re.search(r"\d(?=gpu|_)|(?<=-)\d(?=_)", path.name)[0])  # type: ignore[index]
            assert topology.warnings  # none of these texts names its GPU
            assert Topology.from_json(topology.to_json()) == topology
