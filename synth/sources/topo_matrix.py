"""The text of `nvidia-smi topo -m`, read word by word into a matrix of GPU-to-GPU relations.

Columns are never found by position: terminals, mailers and hands move them. Everything right of the device
columns (CPU and NUMA affinity, in many spellings) is left alone.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from latecomer.schedules.errors import TopologyError

PCIE_RELATIONS: Final = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""From near to far: one PCIe switch, several PCIe switches, a host bridge, a NUMA node, across sockets."""

_OLD_NAMES: Final = {"SOC": "SYS", "QPI": "SYS"}
_MOST_NVLINKS: Final = 36
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HOW: Final = "paste all of what `nvidia-smi topo -m` prints, or write it to a file with > topo.txt"


class TopoMatrix(NamedTuple):
    """What the text says. Rank i is the i-th GPU listed.

    `gpus`: names as printed. `relations[i][j]`: `NV<k>` for k NVLinks, or one of `PCIE_RELATIONS`; `X` on the
    diagonal. `nics`: names of the other devices listed.
    """

    gpus: tuple[str, ...]
    relations: tuple[tuple[str, ...], ...]
    nics: tuple[str, ...]

    def nvlinks(self, a: int, b: int) -> int:
        """Number of NVLinks between two GPUs, 0 where there is none."""
        relation = self.relations[a][b]
        return int(relation[2:]) if relation.startswith("NV") else 0


def looks_like_topo(text: str) -> bool:
    """Some line is the header of such a matrix."""
    return any(_is_header(line.split()) for line in clean(text).splitlines())


def clean(text: str) -> str:
    """`text` without terminal escapes (the header is printed underlined), with plain line ends."""
    return _ESCAPE.sub("", text).replace("\r\n", "\n").replace("\r", "\n").replace("\xa0", " ")


def read_matrix(text: str, source: str) -> TopoMatrix:
    """Read the matrix in `text`; `source` names it in errors.

    Raises `TopologyError` naming the line, for text that is cut off, whose columns ran together, or that
    contradicts itself.
    """
    lines = clean(text).splitlines()
    start = next((i for i, line in enumerate(lines) if _is_header(line.split())), None)
    if start is None:
        raise TopologyError(f"{source}: no line with GPU0 GPU1 … in it; {_HOW}")
    devices = _devices(lines[start].split(), f"{source}:{start + 1}")
    gpus = tuple(name for name in devices if name.startswith("GPU"))
    rows: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        words = line.split()
        if words and re.match(r"GPU\d", words[0]):
            name = words[0]
            if name not in devices:
                raise TopologyError(f"{source}:{number}: row {name!r} has no column of that name; {_HOW}")
            if name in rows:
                raise TopologyError(f"{source}:{number}: {name} has a second row; give one machine's text")
            rows[name] = _cells(words[1 : len(devices) + 1], devices, name, f"{source}:{number}")
    missing = [name for name in gpus if name not in rows]
    if missing:
        raise TopologyError(f"{source}: the text is cut off: {', '.join(missing)} has a column but no row; {_HOW}")
    where = [devices.index(name) for name in gpus]
    relations = tuple(tuple(rows[name][column] for column in where) for name in gpus)
    _check_symmetric(gpus, relations, source)
    return TopoMatrix(gpus, relations, tuple(name for name in devices if not name.startswith("GPU")))


def _is_header(words: list[str]) -> bool:
    if not words or not re.match(r"GPU\d+", words[0]):
        return False
    return len(words) > 1 and (words[1].startswith("GPU") or words[1:3] == ["CPU", "Affinity"])


def _devices(words: list[str], where: str) -> list[str]:
    devices: list[str] = []
    for word in words:
        if word in ("CPU", "NUMA"):
            break
        glued = re.search(r"Affinity|.CPU$", word) or re.match(r"GPU(?!\d+$)", word)
        if glued:
            raise TopologyError(f"{where}: {word!r} is two columns run together; {_HOW}")
        if word in devices:
            raise TopologyError(f"{where}: {word} has two columns; {_HOW}")
        devices.append(word)
    return devices


def _cells(words: list[str], devices: list[str], name: str, where: str) -> tuple[str, ...]:
    cells = []
    for device, word in zip(devices, words, strict=False):
        cell = _OLD_NAMES.get(word, word)
        if not (cell == "X" or cell in PCIE_RELATIONS or re.fullmatch(r"NV\d{1,2}", cell)):
            ran = " (columns that ran together?)" if re.match(r"(NV\d|X|PIX|PXB|PHB|NODE|SYS).", cell) else ""
            raise TopologyError(
                f"{where}: {name} to {device}: {word!r} is not a connection{ran}; expected NV<number>, "
                f"{', '.join(PCIE_RELATIONS)} or X; {_HOW}"
            )
        if cell.startswith("NV") and not 1 <= int(cell[2:]) <= _MOST_NVLINKS:
            raise TopologyError(
                f"{where}: {name} to {device}: {word!r} would be {cell[2:]} NVLinks, and no GPU has as many "
                f"(columns that ran together?); {_HOW}"
            )
        cells.append(cell)
    if len(cells) < len(devices):
        raise TopologyError(
            f"{where}: the text is cut off: the row of {name} has {len(cells)} of {len(devices)} connections; {_HOW}"
        )
    for device, cell in zip(devices, cells, strict=True):
        if (cell == "X") != (device == name):
            raise TopologyError(f"{where}: {name} to {device} is {cell!r}; X belongs where row and column meet; {_HOW}")
    return tuple(cells)


def _check_symmetric(gpus: tuple[str, ...], relations: tuple[tuple[str, ...], ...], source: str) -> None:
    for a, row in enumerate(relations):
        for b, relation in enumerate(row[:a]):
            if relation != relations[b][a]:
                raise TopologyError(
                    f"{source}: {gpus[a]} to {gpus[b]} is {relation} but {gpus[b]} to {gpus[a]} is "
                    f"{relations[b][a]}; the matrix of a machine is symmetric; {_HOW}"
                )
