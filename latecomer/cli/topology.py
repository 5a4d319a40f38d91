"""`latecomer topology SPEC`: what was understood."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from latecomer.cli.options import topology_options
from latecomer.cli.output import echo_facts, table
from latecomer.schedules.units import format_rate, format_time

if TYPE_CHECKING:
    from latecomer.schedules.topology import Topology


@click.command("topology")
@click.argument("spec")
@topology_options
@click.option("--json", "as_json", is_flag=True, help="Print the topology as JSON; SPEC takes that file too.")
def command(topology: Topology, as_json: bool) -> None:
    """What was understood of SPEC: ranks, links, rates, warnings.

    SPEC is a preset (dgx-v100, dgx-a100, dgx-h100, dgx-b200, mi300x, gb200-nvl72), a switch
    (switch:8@450GB/s,3us,exclusive), a file with the text of `nvidia-smi topo -m` or a topology JSON, or -
    for standard input.

    \b
      nvidia-smi topo -m | latecomer topology - --gpu H100
    """
    if as_json:
        click.echo(topology.to_json(), nl=False)
        return
    facts = [
        ("topology", str(topology)),
        ("rates", topology.source),
        *(("note", note) for note in topology.notes),
        ("algorithms", _serves(topology)),
        ("", ""),
        ("links", _links(topology)),
    ]
    if topology.routable:
        question = f"{_same_topology()} --late RANK --delay 5ms --size 1GiB"
        facts += [("", ""), ("next", f"latecomer synth {question} -o plan.json")]
    echo_facts((name, value) for name, value in facts if value or not name)


def _same_topology() -> str:
    """The flags that name this topology to another command."""
    given = click.get_current_context().params
    flags = {"--topology": "topo.txt" if given["spec"] == "-" else given["spec"], "--gpu": given["gpu"]}
    text = " ".join(f"{flag} {shlex.quote(value)}" for flag, value in flags.items() if value is not None)
    return text if given["link_rate"] is None else f"{text} --link-rate {given['link_rate']:g}GB/s"


def _serves(topology: Topology) -> str:
    if topology.any_to_any:
        return "all: every two GPUs reach each other at the full rate of their ports"
    if topology.full_mesh:
        pair, port = format_rate(topology.pair_gbs(0, 1)), format_rate(topology.out_gbs(0))
        return f"all; a pair has {pair} of a GPU's {port}: best are those that use all links at once"
    if topology.routable:
        return "all, though links differ or are shared: times may be far above the bounds"
    pairs = sum(1 for _ in topology.unrouted())
    all_pairs = topology.ranks * (topology.ranks - 1)
    return f"only those that keep to the links: {pairs} of {all_pairs} ordered pairs of GPUs have none"


def _links(topology: Topology) -> str:
    """Links of the same kind in one row: all GPUs count as the same end."""
    groups: dict[tuple[str, str, float, float], int] = {}
    for link in topology.links:
        src, dst = ("GPU" if isinstance(node, int) else node for node in (link.src, link.dst))
        key = (src, dst, link.bandwidth_gbs, link.latency_us)
        groups[key] = groups.get(key, 0) + 1
    rows = [
        (f"{src} → {dst}", f"{count}", format_rate(rate), format_time(alpha))
        for (src, dst, rate, alpha), count in groups.items()
    ]
    return table(("from → to", "links", "each", "latency"), rows)
