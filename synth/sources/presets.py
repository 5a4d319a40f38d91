"""Topologies that go by a name, and `switch:N@RATE` for any other switch.

Rates are the makers' raw figures, GB/s (1e9) per direction; a run reaches some 80–90 % of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from latecomer.schedules.errors import InputError
from latecomer.schedules.topology import DEFAULT_ALPHA_US, Topology, both_ways
from latecomer.schedules.units import parse_rate, parse_time

# Pairs of a hybrid cube mesh of eight V100 and the number of NVLinks between them: six links per GPU.
_CUBE_MESH: Final = {
    1: [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)],
    2: [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)],
}
_MAX_SWITCH_RANKS: Final = 65536
_EXAMPLE: Final = "switch:8@450GB/s or switch:8@450GB/s,3us,exclusive"


def _dgx_v100() -> Topology:
    links = tuple(link for k, pairs in _CUBE_MESH.items() for link in both_ways(pairs, 25.0 * k, DEFAULT_ALPHA_US))
    return Topology(
        name="dgx-v100",
        ranks=8,
        links=links,
        source="NVLink 2: 6 links of 25 GB/s per direction on each V100, wired as a hybrid cube mesh",
        notes=("no switch: 12 of the 28 pairs have no link and reach each other through another GPU only",),
    )


def _nvswitch(name: str, ranks: int, rate_gbs: float, source: str) -> Callable[[], Topology]:
    return lambda: Topology.switch(ranks, rate_gbs, name=name, switch="nvswitch", source=source)


def _mi300x() -> Topology:
    source = "Infinity Fabric: 7 links of 64 GB/s per direction on each MI300X, one per peer"
    return Topology.mesh(8, 64.0, name="mi300x", source=source)


_PRESETS: Final[dict[str, Callable[[], Topology]]] = {
    "dgx-v100": _dgx_v100,
    "dgx-a100": _nvswitch("dgx-a100", 8, 300.0, "NVLink 3: 12 links of 25 GB/s per direction on each A100"),
    "dgx-h100": _nvswitch("dgx-h100", 8, 450.0, "NVLink 4: 18 links of 25 GB/s per direction on each H100"),
    "dgx-b200": _nvswitch("dgx-b200", 8, 900.0, "NVLink 5: 18 links of 50 GB/s per direction on each B200"),
    "mi300x": _mi300x,
    "gb200-nvl72": _nvswitch("gb200-nvl72", 72, 900.0, "NVLink 5: 18 links of 50 GB/s per direction on each GPU"),
}

PRESETS: Final = tuple(_PRESETS)
"""The names, in the order to show them."""


def preset(name: str) -> Topology:
    """The topology called `name`, one of `PRESETS`; all have shared ports and an α of 3 µs."""
    return _PRESETS[name]()


def parse_switch(spec: str) -> Topology:
    """The topology of `switch:N@RATE[,ALPHA][,exclusive]`: N GPUs on one non-blocking switch.

    Raises `InputError` saying which part cannot be read.
    """
    match = re.fullmatch(r"switch:([^@,]*)@([^,]*)((?:,[^,]*)*)", spec)
    if not match:
        raise InputError(f"{spec!r} is not a switch; write it like {_EXAMPLE}")
    count, rate, extras = match[1].strip(), match[2], match[3].split(",")[1:]
    if not re.fullmatch(r"\d{1,9}", count):
        raise InputError(f"{spec!r}: {count!r} is not a number of GPUs; write it like {_EXAMPLE}")
    if int(count) > _MAX_SWITCH_RANKS:
        raise InputError(f"{spec!r}: more than {_MAX_SWITCH_RANKS} GPUs on one switch are not supported")
    exclusive = "exclusive" in extras
    alphas = [extra for extra in extras if extra not in ("exclusive", "shared")]
    if len(extras) > 2 or len(alphas) > 1:
        raise InputError(
            f"{spec!r}: after the rate may come a latency and the word exclusive; write it like {_EXAMPLE}"
        )
    return Topology.switch(
        int(count),
        parse_rate(rate),
        parse_time(alphas[0]) if alphas else DEFAULT_ALPHA_US,
        ports="exclusive" if exclusive else "shared",
        name=spec,
        source="as given",
    )
