from __future__ import annotations

import re

import pytest

from latecomer.schedules.errors import NotApplicable, TopologyError
from latecomer.schedules.topology import Link, Topology, both_ways


def tree() -> Topology:
    """Ranks 0 and 1 on one switch, 2 and 3 on another, a narrow link between; 0 and 1 also have their own."""
    links = (
        both_ways([(0, "left"), (1, "left"), (2, "right"), (3, "right")], 30.0, 2.0)
        + both_ways([("left", "right")], 10.0, 2.0)
        + both_ways([(0, 1)], 50.0, 1.0)
    )
    return Topology(name="tree", ranks=4, switches=("left", "right"), links=links)


def path(topology: Topology, src: int, dst: int) -> list[int | str]:
    return [src, *(topology.links[index].dst for index in topology.route(src, dst))]


def test_switch() -> None:
    topology = Topology.switch(8, 450.0, 3.0)
    assert path(topology, 2, 5) == [2, "switch", 5]
    assert (topology.pair_gbs(2, 5), topology.pair_latency_us(2, 5), topology.alpha_us) == (450.0, 3.0, 3.0)
    assert (topology.out_gbs(3), topology.in_gbs(3)) == (450.0, 450.0)
    assert topology.any_to_any
    assert topology.routable
    assert not topology.full_mesh
    assert str(topology) == "switch:8: 8 GPUs, one switch, 450 GB/s per port and direction, α 3 µs, shared ports"


def test_mesh() -> None:
    topology = Topology.mesh(4, 64.0, 3.0, ports="exclusive")
    assert path(topology, 0, 3) == [0, 3]
    assert topology.out_gbs(0) == 192.0
    assert topology.full_mesh
    assert topology.routable
    assert not topology.any_to_any
    assert "full mesh, 64 GB/s per pair, 192 GB/s per GPU and direction" in str(topology)


def test_two_ranks_with_one_link_are_any_to_any() -> None:
    topology = Topology.mesh(2, 64.0)
    assert topology.any_to_any
    assert topology.full_mesh
    assert "one link of 64 GB/s per direction" in str(topology)


def test_route_takes_fewest_hops_then_the_widest() -> None:
    topology = tree()
    assert path(topology, 0, 1) == [0, 1]
    assert path(topology, 0, 3) == [0, "left", "right", 3]
    assert topology.pair_gbs(0, 3) == 10.0
    assert topology.pair_latency_us(0, 3) == 2.0
    assert topology.alpha_us == 2.0
    assert not topology.any_to_any
    two = Topology(
        name="two planes", ranks=2, switches=("narrow", "wide"),
        links=both_ways([(0, "narrow"), (1, "narrow")], 10.0, 1.0)
        + both_ways([(0, "wide"), (1, "wide")], 20.0, 1.0),
    )  # fmt: skip
    assert path(two, 0, 1) == [0, "wide", 1]


def test_a_route_never_passes_a_rank() -> None:
    line = Topology(name="line", ranks=3, links=both_ways([(0, 1), (1, 2)], 10.0, 1.0))
    assert not line.routable
    assert list(line.unrouted()) == [(0, 2), (2, 0)]
    assert line.has_route(0, 1)
    assert not line.has_route(0, 2)
    with pytest.raises(TopologyError, match="GPU 0 and GPU 2 have no link on line"):
        line.route(0, 2)
    with pytest.raises(NotApplicable, match=r"ring needs a switch.*GPU 0 and GPU 2 have no link.*switch:3@"):
        line.require_switch("ring")
    assert line.alpha_us == 1.0


def test_with_alpha_is_the_latency_of_every_pair() -> None:
    topology = tree().with_alpha(7.0)
    assert {topology.pair_latency_us(a, b) for a in range(4) for b in range(4) if a != b} == {7.0}
    assert topology.pair_gbs(0, 3) == 10.0


def test_with_alpha_after_questions() -> None:
    topology = tree()
    assert topology.routable
    assert topology.alpha_us == 2.0
    assert topology.with_ports("exclusive").with_alpha(5.0).alpha_us == 5.0


def test_graph() -> None:
    graph = tree().graph
    assert graph.nodes["left"]["kind"] == "switch"
    assert graph.edges[0, 1]["bandwidth_gbs"] == 50.0
    assert graph.number_of_edges() == len(tree().links)


def test_equal_networks_are_equal_values() -> None:
    topology = tree()
    shuffled = Topology(**{**topology._fields(), "links": topology.links[::-1]})
    assert shuffled == topology
    assert shuffled.digest == topology.digest
    renamed = Topology(**{**topology._fields(), "name": "other", "warnings": ("assumed",)})
    assert renamed.digest == topology.digest
    assert topology.with_alpha(7.0).digest != topology.digest
    assert topology.with_ports("exclusive").digest != topology.digest


def test_json_round_trip() -> None:
    topology = Topology(**{**tree()._fields(), "notes": ("α is a guess",), "source": "a test"})
    text = topology.to_json()
    assert Topology.from_json(text) == topology
    assert Topology.from_json(text).to_json() == text
    assert '"format": "latecomer.topology/1"' in text


def test_big_switch_is_quick() -> None:
    topology = Topology.switch(256, 450.0)
    assert topology.routable
    assert topology.alpha_us == 3.0
    assert not topology._known_routes  # the shape answers both; no route was computed


PAIR = both_ways([(0, 1)], 10.0, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": 1, "links": ()}, "at least 2 GPUs, this one has 1"),
        ({"ranks": 3}, "GPU 0 cannot reach GPU 2; add the links"),
        ({"links": PAIR[:1]}, "GPU 1 cannot reach GPU 0; links are directed"),
        (
            {"links": PAIR + both_ways([(1, 5)], 1.0, 1.0)},
            r"GPU 1 → GPU 5 dangles: there is no GPU 5; GPUs are 0 … 1",
        ),
        ({"links": PAIR + both_ways([(1, "x")], 1.0, 1.0)}, r"GPU 1 → switch 'x' dangles.*switches are none"),
        ({"links": PAIR + PAIR}, "GPU 0 → GPU 1 appears twice; give parallel links as one"),
        ({"switches": ("a", "a")}, "switches must have names that differ"),
        ({"switches": ("a",)}, "GPU 0 cannot reach switch 'a'"),
    ],
)
def test_malformed(change: dict[str, object], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Topology(**{"name": "pair", "ranks": 2, "links": PAIR, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dst": 0}, "GPU 0 → GPU 0 joins a node to itself"),
        ({"bandwidth_gbs": 0.0}, "has a rate of 0.0 GB/s; give one above 0"),
        ({"bandwidth_gbs": float("inf")}, "has a rate of inf GB/s"),
        ({"latency_us": -1.0}, "has a latency of -1.0 µs; give 0 … 1e+12"),
        ({"latency_us": float("nan")}, "has a latency of nan µs"),
    ],
)
def test_malformed_link(change: dict[str, object], message: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(message)):
        Link(**{"src": 0, "dst": 1, "bandwidth_gbs": 1.0, "latency_us": 1.0, **change})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("latecomer.topology/1", "other/1", "t.json: not a latecomer topology: \"format\" should be"),
        ('"ranks": 2', '"ranks": "two"', "t.json: ranks: should be a whole number, not \"two\""),
        ('"ranks": 2', '"ranks": 1', "t.json: a topology needs at least 2 GPUs"),
        ("10.0", "-10.0", "t.json: the link GPU 0 → GPU 1 has a rate of -10.0 GB/s"),
        ("10.0", "NaN", "t.json: the link GPU 0 → GPU 1 has a rate of nan GB/s"),
        ('"ports": "shared"', '"ports": "none"', "t.json: ports: should be 'exclusive' or 'shared', not \"none\""),
        ("\n]\n}", "", "t.json: not JSON, or cut off"),
        ('"ranks"', '"rank"', "t.json: ranks: is missing\nt.json: rank: is not a field of this format"),
    ],
)  # fmt: skip
def test_bad_json(old: str, new: str, message: str) -> None:
    text = Topology(name="pair", ranks=2, links=PAIR).to_json()
    assert old in text
    with pytest.raises(TopologyError, match=re.escape(message)):
        Topology.from_json(text.replace(old, new), "t.json")


def test_a_node_of_no_kind() -> None:
    text = Topology(name="pair", ranks=2, links=PAIR).to_json().replace('"src": 0', '"src": 0.5')
    with pytest.raises(TopologyError) as caught:
        Topology.from_json(text, "t.json")
    assert str(caught.value) == "t.json: links.0.src: should be a whole number or a text, not 0.5"


def test_json_that_is_a_list() -> None:
    with pytest.raises(TopologyError, match="found None"):
        Topology.from_json("[1, 2]", "t.json")
    with pytest.raises(TopologyError, match="not JSON"):
        Topology.from_json("[" * 100_000, "t.json")
