"""`Topology`: ranks, switches and the directed links between them, each with a rate and a latency.

A message between two ranks travels its *route*: a path that passes through switches only, never through
another rank (a GPU does not forward; where two ranks have no such path, a schedule has to relay).

Convention: the link that leaves a rank carries the whole latency α of a message, links that leave a switch
carry none, so the α of every pair is the number the user gave.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import permutations
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)

from latecomer.schedules.errors import NotApplicable, TopologyError
from latecomer.schedules.faults import in_words
from latecomer.schedules.routes import routes_from
from latecomer.schedules.schedule import PortModel
from latecomer.schedules.units import MAX_RATE_GBS, MAX_TIME_US, MIN_RATE_GBS, format_rate, format_time

if TYPE_CHECKING:
    import networkx as nx

FORMAT: Final = "latecomer.topology/1"

DEFAULT_ALPHA_US = 3.0
"""Latency of a message where nobody says otherwise: the value the published simulation uses."""

MAX_RANKS: Final = 65_536
"""More GPUs than any one collective; keeps a slip of the finger from filling memory."""

Node = StrictInt | StrictStr
"""A rank (its number) or a switch (its name)."""


def node_label(node: int | str) -> str:
    """`GPU 3` or `switch 'nvswitch'`: how messages name a node."""
    return f"GPU {node}" if isinstance(node, int) else f"switch {node!r}"


def _key(node: int | str) -> tuple[bool, int, str]:
    return (False, node, "") if isinstance(node, int) else (True, 0, node)


class Link(BaseModel):
    """One direction of one connection. `bandwidth_gbs` in GB/s (1e9 bytes a second), `latency_us` in µs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    src: Node
    dst: Node
    bandwidth_gbs: float
    latency_us: float
    source: str | None = None
    """Where the rate comes from, when it differs from the topology's source."""

    @model_validator(mode="after")
    def _well_formed(self) -> Self:
        where = f"the link {node_label(self.src)} → {node_label(self.dst)}"
        if self.src == self.dst:
            raise TopologyError(f"{where} joins a node to itself; leave it out")
        if self.bandwidth_gbs > MAX_RATE_GBS or 0 < self.bandwidth_gbs < MIN_RATE_GBS:
            raise TopologyError(
                f"{where} has a rate of {self.bandwidth_gbs} GB/s; rates are {MIN_RATE_GBS} … {MAX_RATE_GBS:g}"
            )
        if not (math.isfinite(self.bandwidth_gbs) and self.bandwidth_gbs > 0):
            raise TopologyError(
                f"{where} has a rate of {self.bandwidth_gbs} GB/s; give one above 0, or leave the link out"
            )
        if not (math.isfinite(self.latency_us) and 0 <= self.latency_us <= MAX_TIME_US):
            raise TopologyError(f"{where} has a latency of {self.latency_us} µs; give 0 … {MAX_TIME_US:g}")
        return self


class Topology(BaseModel):
    """A connected network of `ranks` GPUs. Immutable; links are kept sorted, so equal networks are equal
    values.

    Attributes
    ----------
    ranks:
        Number of GPUs, at least 2; rank nodes are the numbers 0 … ranks-1.
    switches:
        Names of the other nodes: NVSwitch, PCIe switch, host bridge, socket interconnect.
    ports:
        What one GPU's port can do at once (see `PortModel`).
    links:
        Sorted by source, then destination; at most one for each ordered pair of nodes (parallel ones are
        summed).
    source:
        Where the rates come from.
    notes, warnings:
        What was understood, and what was assumed, when the topology was read; neither changes the network.

    Raises
    ------
    TopologyError
        Fewer than two ranks, a link that dangles or appears twice, a network that is not connected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["latecomer.topology/1"] = FORMAT
    name: str
    ranks: int
    switches: tuple[str, ...] = ()
    ports: PortModel = "shared"
    source: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    links: tuple[Link, ...]

    @field_validator("links")
    @classmethod
    def _sorted(cls, links: tuple[Link, ...]) -> tuple[Link, ...]:
        return tuple(sorted(links, key=lambda link: (_key(link.src), _key(link.dst))))

    @model_validator(mode="after")
    def _well_formed(self) -> Self:
        if self.ranks > MAX_RANKS:
            raise TopologyError(f"{self.ranks} GPUs are more than any schedule here is for; at most {MAX_RANKS}")
        if self.ranks < 2:
            raise TopologyError(
                f"a topology needs at least 2 GPUs, this one has {self.ranks}: a single GPU has nobody to reduce with"
            )
        if len(set(self.switches)) != len(self.switches) or "" in self.switches:
            raise TopologyError("switches must have names that differ")
        self._check_ends()
        self._check_connected()
        return self

    def _check_ends(self) -> None:
        switches, seen = set(self.switches), set()
        for link in self.links:
            for node in (link.src, link.dst):
                if node not in switches if isinstance(node, str) else not 0 <= node < self.ranks:
                    raise TopologyError(
                        f"the link {node_label(link.src)} → {node_label(link.dst)} dangles: there is no "
                        f"{node_label(node)}; GPUs are 0 … {self.ranks - 1}, "
                        f"switches are {', '.join(map(repr, self.switches)) or 'none'}"
                    )
            if (link.src, link.dst) in seen:
                raise TopologyError(
                    f"the link {node_label(link.src)} → {node_label(link.dst)} appears twice; "
                    "give parallel links as one with the sum of their rates"
                )
            seen.add((link.src, link.dst))

    def _check_connected(self) -> None:
        forward: dict[int | str, list[int | str]] = {}
        backward: dict[int | str, list[int | str]] = {}
        for link in self.links:
            forward.setdefault(link.src, []).append(link.dst)
            backward.setdefault(link.dst, []).append(link.src)
        outward, inward = _reach(forward), _reach(backward)
        for node in (*range(self.ranks), *self.switches):
            if node not in outward:
                raise TopologyError(
                    f"not connected: GPU 0 cannot reach {node_label(node)}; add the links that are missing"
                )
            if node not in inward:
                raise TopologyError(
                    f"not connected: {node_label(node)} cannot reach GPU 0; links are directed, "
                    "so add the other direction too"
                )

    # -- making ------------------------------------------------------------------------------------

    @classmethod
    def switch(
        cls,
        ranks: int,
        rate_gbs: float,
        alpha_us: float = DEFAULT_ALPHA_US,
        *,
        ports: PortModel = "shared",
        name: str | None = None,
        switch: str = "switch",
        source: str = "",
        notes: Iterable[str] = (),
        warnings: Iterable[str] = (),
    ) -> Topology:
        """`ranks` GPUs on one non-blocking switch, `rate_gbs` GB/s per port and direction."""
        if ranks > MAX_RANKS:
            raise TopologyError(f"{ranks} GPUs are more than any schedule here is for; at most {MAX_RANKS}")
        ends = [(r, switch) for r in range(ranks)]
        return cls(
            name=name or f"switch:{ranks}",
            ranks=ranks,
            switches=(switch,),
            ports=ports,
            source=source,
            notes=tuple(notes),
            warnings=tuple(warnings),
            links=both_ways(ends, rate_gbs, alpha_us),
        )

    @classmethod
    def mesh(
        cls,
        ranks: int,
        rate_gbs: float,
        alpha_us: float = DEFAULT_ALPHA_US,
        *,
        ports: PortModel = "shared",
        name: str | None = None,
        source: str = "",
        notes: Iterable[str] = (),
        warnings: Iterable[str] = (),
    ) -> Topology:
        """`ranks` GPUs with a link of `rate_gbs` GB/s per direction between every two."""
        ends = [(a, b) for a in range(ranks) for b in range(a + 1, ranks)]
        return cls(
            name=name or f"mesh:{ranks}",
            ranks=ranks,
            ports=ports,
            source=source,
            notes=tuple(notes),
            warnings=tuple(warnings),
            links=both_ways(ends, rate_gbs, alpha_us),
        )

    def with_alpha(self, alpha_us: float) -> Topology:
        """The same network in which every pair's α is `alpha_us` µs."""
        links = (
            Link(**{**link.model_dump(), "latency_us": alpha_us if isinstance(link.src, int) else 0.0})
            for link in self.links
        )
        return Topology(**{**self._fields(), "links": tuple(links)})

    def with_ports(self, ports: PortModel) -> Topology:
        """The same network under another port model."""
        return Topology(**{**self._fields(), "ports": ports})

    def scaled(self, alpha_factor: float, beta_factor: float) -> Topology:
        """The same network with every latency and every second per byte multiplied by a factor."""
        links = (
            Link(
                **{
                    **link.model_dump(),
                    "latency_us": link.latency_us * alpha_factor,
                    "bandwidth_gbs": link.bandwidth_gbs / beta_factor,
                }
            )
            for link in self.links
        )
        return Topology(**{**self._fields(), "links": tuple(links)})

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}  # dict(self) has cached properties too

    # -- routes ------------------------------------------------------------------------------------

    def route(self, src_rank: int, dst_rank: int) -> tuple[int, ...]:
        """Indices into `links` of the path a message takes: fewest hops, then widest, then lowest link
        indices.

        A route passes through switches only. O(links) for the first question about a source, then a look-up.
        Raises `TopologyError` where there is none.
        """
        route = self._routes_from(src_rank).get(dst_rank)
        if route is None:
            raise TopologyError(
                f"{node_label(src_rank)} and {node_label(dst_rank)} have no link on {self.name}, "
                "and no switch joins them; use an algorithm that relays, or another topology"
            )
        return route

    def has_route(self, src_rank: int, dst_rank: int) -> bool:
        """A message from the one can reach the other without passing a third GPU."""
        return self.any_to_any or dst_rank in self._routes_from(src_rank)

    @cached_property
    def _out_links(self) -> dict[int | str, list[int]]:
        out: dict[int | str, list[int]] = {}
        for index, link in enumerate(self.links):
            out.setdefault(link.src, []).append(index)
        return out

    @cached_property
    def _known_routes(self) -> dict[int, dict[int | str, tuple[int, ...]]]:
        return {}

    def _routes_from(self, src: int) -> dict[int | str, tuple[int, ...]]:
        if src not in self._known_routes:
            self._known_routes[src] = routes_from(src, self.links, self._out_links)
        return self._known_routes[src]

    def pair_gbs(self, src_rank: int, dst_rank: int) -> float:
        """Rate of the narrowest link on the route, GB/s. Raises `TopologyError` where there is no route."""
        return min(self.links[index].bandwidth_gbs for index in self.route(src_rank, dst_rank))

    def pair_latency_us(self, src_rank: int, dst_rank: int) -> float:
        """Sum of the latencies on the route, µs: the pair's α. Raises `TopologyError` where there is no
        route."""
        return sum(self.links[index].latency_us for index in self.route(src_rank, dst_rank))

    def unrouted(self) -> Iterator[tuple[int, int]]:
        """Ordered pairs of ranks that have no route, in order."""
        if not self.any_to_any:
            for src, dst in permutations(range(self.ranks), 2):
                if not self.has_route(src, dst):
                    yield src, dst

    # -- what kind of network it is ----------------------------------------------------------------

    @cached_property
    def routable(self) -> bool:
        """Every two ranks have a route."""
        return next(self.unrouted(), None) is None

    @cached_property
    def any_to_any(self) -> bool:
        """Every two ranks reach each other at the full rate of their ports, which are all equal.

        That is: one switch with an equal link to and from every rank and nothing else, or two ranks with one
        link.
        """
        if len({link.bandwidth_gbs for link in self.links}) != 1:
            return False
        if not self.switches:
            return self.ranks == 2
        return (
            len(self.switches) == 1
            and len(self.links) == 2 * self.ranks
            and all(isinstance(link.src, str) or isinstance(link.dst, str) for link in self.links)
        )

    @cached_property
    def full_mesh(self) -> bool:
        """Every two ranks have a direct link, all of the same rate."""
        direct = [link for link in self.links if isinstance(link.src, int) and isinstance(link.dst, int)]
        return len(direct) == self.ranks * (self.ranks - 1) and len({link.bandwidth_gbs for link in direct}) == 1

    def require_switch(self, algorithm: str) -> None:
        """Raises `NotApplicable` unless every two ranks have a route, naming `algorithm` and a pair that has
        none."""
        pair = next(self.unrouted(), None)
        if pair is not None:
            raise NotApplicable(
                f"{algorithm} needs a switch or a link between every two GPUs, but on {self.name} "
                f"GPU {pair[0]} and GPU {pair[1]} have no link; use a topology with a switch, such as "
                f"switch:{self.ranks}@25GB/s"
            )

    def require_shared_ports(self, algorithm: str) -> None:
        """Raises `NotApplicable` where ports are exclusive, for an `algorithm` that sends to several peers."""
        if self.ports == "exclusive":
            raise NotApplicable(
                f"{algorithm} sends to several peers at once, but the ports of {self.name} are exclusive; "
                "use a one-port algorithm (circulant, tiling, ring)"
            )

    def out_gbs(self, rank: int) -> float:
        """Sum of the rates of the links that leave `rank`, GB/s."""
        return self._port_gbs[0][rank]

    def in_gbs(self, rank: int) -> float:
        """Sum of the rates of the links that enter `rank`, GB/s."""
        return self._port_gbs[1][rank]

    @cached_property
    def _port_gbs(self) -> tuple[list[float], list[float]]:
        out, into = [0.0] * self.ranks, [0.0] * self.ranks
        for link in self.links:
            if isinstance(link.src, int):
                out[link.src] += link.bandwidth_gbs
            if isinstance(link.dst, int):
                into[link.dst] += link.bandwidth_gbs
        return out, into

    @cached_property
    def alpha_us(self) -> float:
        """The largest latency of a pair that has a route, µs; the α of all pairs where they are alike."""
        if self.any_to_any and self.switches:
            out = [link.latency_us for link in self.links if isinstance(link.src, int)]
            into = [link.latency_us for link in self.links if isinstance(link.dst, int)]
            if len(set(out)) == len(set(into)) == 1:  # spares the routes of all pairs on a big switch
                return out[0] + into[0]
        routes = (
            path for src in range(self.ranks) for node, path in self._routes_from(src).items() if isinstance(node, int)
        )
        return max((sum(self.links[index].latency_us for index in path) for path in routes), default=0.0)

    @cached_property
    def graph(self) -> nx.DiGraph:
        """The network for graph algorithms: edges carry `bandwidth_gbs`, `latency_us` and `index` (into
        `links`)."""
        import networkx as nx  # costs a noticeable part of a second, and most questions do not need it

        graph = nx.DiGraph(name=self.name)
        graph.add_nodes_from(range(self.ranks), kind="rank")
        graph.add_nodes_from(self.switches, kind="switch")
        for index, link in enumerate(self.links):
            graph.add_edge(
                link.src, link.dst, bandwidth_gbs=link.bandwidth_gbs, latency_us=link.latency_us, index=index
            )
        return graph

    # -- text --------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of what decides times: ranks, switches, ports and links; names and notes do not
        count."""
        links = [(link.src, link.dst, link.bandwidth_gbs, link.latency_us) for link in self.links]
        facts = {"ranks": self.ranks, "switches": sorted(self.switches), "ports": self.ports, "links": links}
        return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()

    def to_json(self) -> str:
        """The file format: one line per field and per link; `from_json` restores it byte for byte."""
        lines = []
        for name, value in self.model_dump(mode="json").items():
            if name == "links":
                rows = (json.dumps({k: v for k, v in row.items() if v is not None}) for row in value)
                lines.append('"links": [\n ' + ",\n ".join(rows) + "\n]")
            else:
                lines.append(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str, source: str = "topology") -> Topology:
        """Read what `to_json` wrote. Raises `TopologyError` naming `source` and what is wrong."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TopologyError(f"{source}: not JSON, or cut off ({error})") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else None
            raise TopologyError(f'{source}: not a latecomer topology: "format" should be {FORMAT!r}, found {found!r}')
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise TopologyError(in_words(error, source, "topology")) from error
        except TopologyError as error:
            raise TopologyError(f"{source}: {error}") from error

    def __str__(self) -> str:
        if self.any_to_any:
            shape = (
                f"one switch, {format_rate(self.out_gbs(0))} per port and direction"
                if self.switches
                else f"one link of {format_rate(self.out_gbs(0))} per direction"
            )
        elif self.full_mesh:
            pair, gpu = format_rate(self.pair_gbs(0, 1)), format_rate(self.out_gbs(0))
            shape = f"full mesh, {pair} per pair, {gpu} per GPU and direction"
        else:
            number = len(self.switches)
            switches = f"{number} switch{'es' if number > 1 else ''} and " if number else ""
            shape = f"a graph with {switches}{len(self.links)} links"
        alpha = format_time(self.alpha_us)
        return f"{self.name}: {self.ranks} GPUs, {shape}, α {alpha}, {self.ports} ports"


def both_ways(ends: Iterable[tuple[int | str, int | str]], rate_gbs: float, alpha_us: float) -> tuple[Link, ...]:
    """Links in both directions between each pair of `ends`; a link that leaves a rank carries `alpha_us`."""
    return tuple(
        Link(src=src, dst=dst, bandwidth_gbs=rate_gbs, latency_us=alpha_us if isinstance(src, int) else 0.0)
        for a, b in ends
        for src, dst in ((a, b), (b, a))
    )


def _reach(neighbours: dict[int | str, list[int | str]]) -> set[int | str]:
    seen: set[int | str] = {0}
    queue: deque[int | str] = deque([0])
    while queue:
        for node in neighbours.get(queue.popleft(), ()):
            if node not in seen:
                seen.add(node)
                queue.append(node)
    return seen
