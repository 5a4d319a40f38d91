"""GPUs on PCIe as a tree: PCIe switch, host bridge, NUMA node, socket interconnect.

`nvidia-smi` says for two GPUs how far up their common ancestor is, and nothing about rates. So the tree is
certain and its rates are assumptions, stated as warnings:

* a GPU, and a PCIe switch, hangs on an x16 link of the given rate;
* inside a CPU nothing is narrower than what comes in;
* between sockets there is one link of `SOCKET_GBS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from latecomer.schedules.topology import Link, both_ways
from latecomer.synth.sources.topo_matrix import PCIE_RELATIONS

SOCKET_GBS: Final = 16.0
"""GB/s per direction between two CPU sockets: what NCCL's tuning model takes for AMD; Intel's are 6–40."""

_NAMES: Final = {"PIX": "pcie", "PXB": "pcie-upper", "PHB": "host", "NODE": "numa", "SYS": "sockets"}


class _Tree(NamedTuple):
    """A subtree: its topmost node, the ranks below it, and the GB/s its link upwards has."""

    root: int | str
    ranks: list[int]
    uplink_gbs: float


def pcie_tree(
    relations: Sequence[Sequence[str]], port_gbs: float, alpha_us: float
) -> tuple[tuple[str, ...], tuple[Link, ...]]:
    """(names of the switches, links) of the tree that `relations` describes.

    `relations[i][j]` is one of `PCIE_RELATIONS`, or anything else where the pair says nothing about PCIe
    (NVLink): the relations of the others place it. GPUs that nothing places meet at the socket interconnect.

    After: every two ranks have a route; the highest switch joins all. O(n²) for n GPUs.
    """
    trees = [_Tree(rank, [rank], port_gbs) for rank in range(len(relations))]
    switches: list[str] = []
    links: list[Link] = []
    for level, relation in enumerate(PCIE_RELATIONS):
        near = set(PCIE_RELATIONS[: level + 1])
        last = relation == PCIE_RELATIONS[-1]
        number = 0
        groups, trees = _groups(trees, relations, None if last else near), []
        for group in groups:
            if len(group) == 1:  # nothing joins here: it hangs on whatever is next above
                trees.append(group[0])
                continue
            name = _NAMES[relation] if last else f"{_NAMES[relation]}{number}"
            number += 1
            switches.append(name)
            for tree in group:
                rate = min(tree.uplink_gbs, SOCKET_GBS) if last else tree.uplink_gbs
                links += both_ways([(tree.root, name)], rate, alpha_us)
            inside_cpu = relation in ("PHB", "NODE")
            uplink = sum(tree.uplink_gbs for tree in group) if inside_cpu else port_gbs
            trees.append(_Tree(name, sorted(rank for tree in group for rank in tree.ranks), uplink))
    return tuple(switches), tuple(links)


def _groups(trees: list[_Tree], relations: Sequence[Sequence[str]], near: set[str] | None) -> list[list[_Tree]]:
    """Subtrees that pairs of ranks join by a relation in `near` (None: all together), in order of rank."""
    if near is None:
        return [trees]
    groups: list[list[_Tree]] = []
    for tree in trees:
        joined = [group for group in groups if any(_joined(tree, other, relations, near) for other in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([*(other for group in joined for other in group), tree])
    ordered = [sorted(group, key=lambda tree: tree.ranks) for group in groups]
    return sorted(ordered, key=lambda group: group[0].ranks)


def _joined(tree: _Tree, other: _Tree, relations: Sequence[Sequence[str]], near: set[str]) -> bool:
    return any(relations[a][b] in near for a in tree.ranks for b in other.ranks)
