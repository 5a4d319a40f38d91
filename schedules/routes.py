"""`routes_from`: the paths messages take: through switches only, never through another rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

Node = int | str
"""A rank (its number) or a switch (its name)."""


class Wire(Protocol):
    """What a route needs to know of a link."""

    @property
    def dst(self) -> Node:
        """Where it leads."""
        ...

    @property
    def bandwidth_gbs(self) -> float:
        """Its rate, GB/s."""
        ...


def routes_from(
    src: int, links: Sequence[Wire], out_links: Mapping[Node, Sequence[int]]
) -> dict[Node, tuple[int, ...]]:
    """Indices into `links` of the route from rank `src` to every rank and switch it reaches, breadth first.

    Fewest hops, then widest, then lowest link indices. `out_links` names the links that leave each node. O(links).
    """
    routes: dict[Node, tuple[int, ...]] = {src: ()}
    layer: dict[Node, tuple[float, tuple[int, ...]]] = {src: (-math.inf, ())}
    while layer:
        found: dict[Node, tuple[float, tuple[int, ...]]] = {}
        for node, (width, path) in layer.items():
            if isinstance(node, int) and node != src:
                continue
            for index in out_links.get(node, ()):
                link = links[index]
                candidate = (max(width, -link.bandwidth_gbs), (*path, index))
                if link.dst not in routes and (link.dst not in found or candidate < found[link.dst]):
                    found[link.dst] = candidate
        routes |= {node: path for node, (_, path) in found.items()}
        layer = found
    del routes[src]
    return routes
