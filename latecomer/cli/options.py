"""Flags that several commands share, and the question they add up to.

Modules that cost time to import are imported where they are used, so that `--help` of a command is quick.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from latecomer.cli.output import warn
from latecomer.schedules.errors import InputError
from latecomer.schedules.units import format_size, format_time, parse_rate, parse_size, parse_time

if TYPE_CHECKING:
    from latecomer.schedules.arrivals import ArrivalProfile
    from latecomer.schedules.topology import Topology


Function = Callable[..., Any]


def reads(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """An option's callback: the text through `parse`, whose `InputError` is said of the option."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except InputError as error:
            raise click.BadParameter(str(error), ctx=ctx, param=param) from error

    return callback


def _time(flag: str, help: str, default: str | None = None) -> Callable[[Function], Function]:
    return click.option(flag, metavar="TIME", callback=reads(parse_time), default=default, help=help)


_RATES = (
    click.option("--gpu", metavar="MODEL", help="GPU model, for nvidia-smi text: H100, A100, B200, …"),
    click.option(
        "--link-rate",
        metavar="RATE",
        callback=reads(parse_rate),
        help="Rate of one NVLink and direction, for nvidia-smi text: 25GB/s.",
    ),
    _time("--alpha", "Latency of a message; replaces the topology's (3us)."),
)
_QUESTION = (
    click.option(
        "--topology",
        "spec",
        required=True,
        metavar="SPEC",
        help="Preset, file (nvidia-smi topo -m, JSON), switch:N@RATE[,ALPHA][,exclusive], or -.",
    ),
    *_RATES,
    click.option("--late", type=int, metavar="RANK", help="The late rank …"),
    _time("--delay", "… and how long after the others it arrives: 5ms."),
    click.option("--arrivals", metavar="TIMES|FILE", help="Arrival times, one a rank: 0,0,5ms,0; or a file."),
    click.option(
        "--size",
        metavar="SIZE",
        required=True,
        callback=reads(parse_size),
        help="Message per GPU: 1GiB, 64MB; bytes without a unit.",
    ),
    _time("--round-latency", "What starting a round costs a rank, beside α. [0]", "0"),
)


@dataclass(frozen=True)
class Question:
    """What the flags ask: on which network, who arrives when, how many bytes."""

    topology: Topology
    arrivals: ArrivalProfile
    size_bytes: int
    round_latency_us: float

    def __str__(self) -> str:
        return f"{self.topology}\n{describe_arrivals(self.arrivals)}; {format_size(self.size_bytes)} per GPU"


def describe_arrivals(arrivals: ArrivalProfile) -> str:
    """One line: who is late, by how much."""
    if len(arrivals.samples) > 1:
        return f"{len(arrivals.samples)} samples of arrival times"
    if arrivals.is_synchronous:
        return "all ranks arrive together"
    delay = format_time(arrivals.delay_us)
    if arrivals.late_rank is not None:
        return f"rank {arrivals.late_rank} arrives {delay} after the others"
    return f"ranks arrive over {delay}, the last is rank {arrivals.order[-1]}"


def topology_options(function: Function) -> Function:
    """Adds --gpu, --link-rate and --alpha to a command that takes SPEC as an argument called `spec`.

    The command gets `topology` in their place.
    """

    @functools.wraps(function)
    def command(*, spec: str, gpu: str | None, link_rate: float | None, alpha: float | None, **rest: Any) -> Any:
        return function(topology=_topology(spec, gpu, link_rate, alpha), **rest)

    return _with(_RATES, command)


def question_options(function: Function) -> Function:
    """Adds the topology, arrival and size flags; the command gets `question` in their place."""

    @functools.wraps(function)
    def command(
        *,
        spec: str,
        gpu: str | None,
        link_rate: float | None,
        alpha: float | None,
        late: int | None,
        delay: float | None,
        arrivals: str | None,
        size: int,
        round_latency: float,
        **rest: Any,
    ) -> Any:
        if spec == "-" and arrivals == "-":
            raise InputError("--topology and --arrivals cannot both be read from standard input")
        topology = _topology(spec, gpu, link_rate, alpha)
        profile = _arrivals(topology.ranks, late, delay, arrivals)
        return function(question=Question(topology, profile, size, round_latency), **rest)

    return _with(_QUESTION, command)


def _with(options: tuple[Callable[[Function], Function], ...], function: Function) -> Function:
    for option in reversed(options):
        function = option(function)
    return function


def _topology(spec: str, gpu: str | None, link_rate: float | None, alpha: float | None) -> Topology:
    from latecomer.synth.sources.spec import load_topology

    topology = load_topology(spec, gpu=gpu, link_rate_gbs=link_rate, alpha_us=alpha)
    for warning in topology.warnings:
        warn(warning)
    return topology


def _arrivals(ranks: int, late: int | None, delay: float | None, spec: str | None) -> ArrivalProfile:
    from latecomer.schedules.arrivals import ArrivalProfile
    from latecomer.synth.sources.arrivals import load_arrivals

    if spec is not None:
        if late is not None or delay is not None:
            raise InputError("--arrivals says who is late; leave out --late and --delay")
        return load_arrivals(spec, ranks)
    if delay is not None:
        return ArrivalProfile.late(ranks, late, delay)
    if late is not None:
        ArrivalProfile.late(ranks, late, 0.0)  # a rank that is not there is the more useful message
        raise InputError(f"rank {late} is late, but by how much? Add --delay 5ms")
    return ArrivalProfile.synchronous(ranks)
