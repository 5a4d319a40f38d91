"""`nvidia-smi topo -m` → `Topology`.

The text says how many NVLinks join two GPUs and how far apart they are on PCIe. It does not say which GPU it
is, so the rate of a link is an assumption (and a warning) unless the caller knows the model or the rate; nor
does it mention NVSwitches, which are inferred: GPUs that reach all others by k NVLinks each, k times the
others being more than a GPU has, must share them through a switch.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from latecomer.schedules.errors import TopologyError
from latecomer.schedules.topology import DEFAULT_ALPHA_US, Link, Topology, both_ways
from latecomer.schedules.units import format_rate
from latecomer.synth.sources.gpus import PCIE_X16_GBS, GpuModel, gpu_model
from latecomer.synth.sources.pcie_tree import SOCKET_GBS, pcie_tree
from latecomer.synth.sources.topo_matrix import TopoMatrix, read_matrix

_UNKNOWN_NVLINKS: Final = 18
"""As many as any GPU sold so far has, where the model is not known."""
_ASSUMED_NVLINK_GBS: Final = 25.0
_BRIDGE_GBS: Final = 14.0625
"""One NVLink of the four in a bridge between two PCIe cards (56.25 GB/s per direction together)."""
_ASSUMED_PCIE: Final = 4


def read_nvidia_smi(
    text: str,
    source: str = "nvidia-smi topo -m",
    *,
    gpu: str | None = None,
    link_rate_gbs: float | None = None,
) -> Topology:
    """The machine that `text` describes; rank i is the i-th GPU listed, α is 3 µs for every pair.

    Parameters
    ----------
    gpu:
        Model, as in `H100`; gives the rate of a link and the number of NVLinks a GPU has.
    link_rate_gbs:
        GB/s per direction of one NVLink (of one GPU's PCIe port where there is no NVLink).

    Raises
    ------
    TopologyError
        Text that is cut off or damaged, one GPU only, more NVLinks than the model has.
    InputError
        A model that is not known.
    """
    matrix = read_matrix(text, source)
    ranks = len(matrix.gpus)
    if ranks < 2:
        raise TopologyError(f"{source}: only {matrix.gpus[0]} is listed; an AllReduce needs at least 2 GPUs")
    machine = _Machine(matrix, gpu_model(gpu) if gpu else None, link_rate_gbs, source)
    islands = machine.islands()
    if len(islands) == 1:
        switches, links = machine.island(islands[0], "nvswitch")
        machine.warn_about_pairs()
    else:
        switches, links = machine.islands_over_pcie(islands)
    return Topology(
        name=source,
        ranks=ranks,
        switches=switches,
        links=links,
        source=machine.rate_source(),
        notes=tuple(machine.notes),
        warnings=tuple(machine.warnings),
    )


class _Machine:
    """The matrix with what is known about the GPU; collects notes and warnings while the links are made."""

    def __init__(self, matrix: TopoMatrix, model: GpuModel | None, gbs: float | None, source: str) -> None:
        self.matrix, self.model, self.given_gbs = matrix, model, gbs
        self.ranks = range(len(matrix.gpus))
        most = max(matrix.nvlinks(a, b) for a in self.ranks for b in self.ranks)
        self.has_nvlink = most > 0
        self.notes: list[str] = []
        self.warnings: list[str] = []
        if matrix.gpus != tuple(f"GPU{rank}" for rank in self.ranks):
            named = (f"rank {rank} is {name}" for rank, name in enumerate(matrix.gpus))
            self.notes.append(f"ranks are numbered in the order listed: {', '.join(named)}")
        if matrix.nics:
            self.notes.append(f"network adapters are left out: {', '.join(matrix.nics)}")
        if model and most > model.nvlinks:
            raise TopologyError(
                f"{source}: NV{most} between two GPUs, but {model.name} has "
                f"{model.nvlinks or 'no'} NVLinks; check --gpu"
            )

    def islands(self) -> list[list[int]]:
        """Sets of GPUs that NVLinks connect, by their first GPU; a GPU without NVLink is one by itself."""
        islands: list[list[int]] = []
        seen: set[int] = set()
        for first in self.ranks:
            if first in seen:
                continue
            island, todo = {first}, [first]
            while todo:
                near = todo.pop()
                more = [b for b in self.ranks if self.matrix.nvlinks(near, b) and b not in island]
                island.update(more)
                todo += more
            seen |= island
            islands.append(sorted(island))
        return islands

    def island(self, gpus: list[int], switch: str) -> tuple[tuple[str, ...], tuple[Link, ...]]:
        """The NVLinks among `gpus`: an NVSwitch where they cannot all be direct, else links of pairs."""
        pairs = {(a, b): self.matrix.nvlinks(a, b) for a in gpus for b in gpus if a < b}
        most = self.model.nvlinks if self.model else _UNKNOWN_NVLINKS
        kinds = set(pairs.values())
        used = max(sum(k for pair, k in pairs.items() if gpu in pair) for gpu in gpus)
        k = max(kinds)
        per_link = self.nvlink_gbs()
        if len(kinds) == 1 and used > most:
            self.notes.append(
                f"NV{k} between all {len(gpus)} GPUs is more than a GPU has, so they share an NVSwitch: "
                f"{format_rate(k * per_link)} per GPU and direction"
            )
            return (switch,), both_ways([(gpu, switch) for gpu in gpus], k * per_link, DEFAULT_ALPHA_US)
        if used > most:
            self.warnings.append(
                f"a GPU uses {used} NVLinks, more than {most}; they are taken as direct links all the same"
            )
        links: list[Link] = []
        for pair, count in pairs.items():
            if count:
                links += both_ways([pair], count * per_link, DEFAULT_ALPHA_US)
        counts = Counter(count for count in pairs.values() if count)
        shape = ", ".join(f"{number} pairs with NV{count}" for count, number in sorted(counts.items()))
        shape = shape if len(pairs) > 1 else f"NV{k}"
        self.notes.append(f"direct NVLinks: {shape}, {format_rate(per_link)} per link and direction")
        return (), tuple(links)

    def islands_over_pcie(self, islands: list[list[int]]) -> tuple[tuple[str, ...], tuple[Link, ...]]:
        """NVLink inside each island, the PCIe tree between them."""
        switches: tuple[str, ...] = ()
        links: tuple[Link, ...] = ()
        joined = [island for island in islands if len(island) > 1]
        for number, island in enumerate(joined):
            more_switches, more_links = self.island(island, f"nvswitch{number}")
            switches, links = switches + more_switches, links + more_links
        if joined:
            self.notes = list(dict.fromkeys(self.notes))  # every island says the same
            self.notes.append(f"{len(joined)} NVLink islands, joined by PCIe")
        tree_switches, tree_links = pcie_tree(self.matrix.relations, self.pcie_gbs(), DEFAULT_ALPHA_US)
        if "sockets" in tree_switches:
            rate = format_rate(SOCKET_GBS)
            self.warnings.append(f"the rate between CPU sockets is assumed: {rate} per direction")
        return switches + tree_switches, links + tree_links

    def nvlink_gbs(self) -> float:
        """GB/s per direction of one NVLink; adds a warning where it is assumed."""
        if self.given_gbs is not None:
            return self.given_gbs
        if self.model:
            return self.model.nvlink_gbs
        counts = {self.matrix.nvlinks(a, b) for a in self.ranks for b in self.ranks} - {0}
        pairs_only = all(len(island) <= 2 for island in self.islands())
        bridge = pairs_only and len(self.ranks) > 2 and counts == {4}
        rate = _BRIDGE_GBS if bridge else _ASSUMED_NVLINK_GBS
        kind = "a bridge between two PCIe cards" if bridge else "V100 to H200 have it, B200 has twice that"
        warning = (
            f"the text does not name the GPU: {format_rate(rate)} per NVLink and direction is assumed "
            f"({kind}); say --gpu MODEL or --link-rate RATE"
        )
        if warning not in self.warnings:
            self.warnings.append(warning)
        return rate

    def pcie_gbs(self) -> float:
        """GB/s per direction of a GPU's PCIe port; adds a warning where it is assumed."""
        if self.given_gbs is not None and not self.has_nvlink:
            return self.given_gbs
        generation = self.model.pcie if self.model else _ASSUMED_PCIE
        rate = PCIE_X16_GBS[generation]
        hint = "" if self.model else "; say --gpu MODEL"
        hint += "" if self.model or self.has_nvlink else " or --link-rate RATE"
        self.warnings.append(
            f"the rate of PCIe is assumed: {format_rate(rate)} per direction, generation {generation} x16{hint}"
        )
        return rate

    def warn_about_pairs(self) -> None:
        """A warning that names the pairs which NVLink does not join, where there are some."""
        pairs = ((a, b) for a in self.ranks for b in self.ranks if a < b)
        bare = [f"GPU{a}–GPU{b}" for a, b in pairs if not self.matrix.nvlinks(a, b)]
        if bare:
            self.warnings.append(
                f"{len(bare)} pairs have no NVLink and reach each other through another GPU only "
                f"(PCIe is left out): {', '.join(bare)}"
            )

    def rate_source(self) -> str:
        """Where the rates come from, for `Topology.source`."""
        if self.given_gbs is not None:
            return f"as given: {format_rate(self.given_gbs)} per link and direction"
        return f"published rates of {self.model.name}" if self.model else "assumed, see the warnings"
