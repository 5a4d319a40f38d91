"""Flags that several commands share, and the question they add up to.

Modules that cost time to import are imported where they are used, so that `--help` of a command is quick.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from latecomer.cli.output import warn
from latecomer.schedules.errors import InputError
from latecomer.schedules.units import parse_rate, parse_size, parse_time

if TYPE_CHECKING:
    from latecomer.schedules.arrivals import ArrivalProfile
    from latecomer.schedules.topology import Topology


Function = Callable[..., Any]

_SWITCH_WORDS = ("shared", "exclusive")
"""What may follow a switch's rate, beside a latency."""


def reads(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """An option's callback: the text through `parse`, whose `InputError` is said of the option."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except InputError as error:
            raise click.BadParameter(str(error), ctx=ctx, param=param) from error

    return callback


def output_option(help: str) -> Callable[[Function], Function]:
    """-o, --output; `-` is standard output."""

    def named(text: str) -> str:
        if not text:
            raise InputError("the name is empty; name a file, or - for standard output")
        return text

    return click.option("-o", "--output", metavar="OUT", callback=reads(named), help=help)


def _time(flag: str, help: str, default: str | None = None, alias: str | None = None) -> Callable[[Function], Function]:
    flags = [flag, *([alias] if alias else []), flag.removeprefix("--").replace("-", "_")]
    return click.option(*flags, metavar="TIME", callback=reads(parse_time), default=default, help=help)


def _chunks(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{text!r} is neither auto nor a number of chunks, 1 or more")
    return int(text)


def parse_sizes(text: str) -> tuple[int, int]:
    """(smallest, greatest) bytes of `1KiB..4GiB`. Raises `InputError`."""
    low, dots, high = text.partition("..")
    if not dots:
        raise InputError(f"{text!r} is not a range of sizes; write it like 1KiB..4GiB")
    sizes = parse_size(low), parse_size(high)
    if sizes[0] > sizes[1]:
        raise InputError(f"{text!r} goes down; write the smaller size first")
    return sizes


chunks_option = click.option(
    "--chunks",
    metavar="K",
    callback=reads(_chunks),
    help="How many chunks the message is cut into (segments for all_pairs), or auto. [auto]",
)
sizes_option = click.option(
    "--sizes", metavar="FROM..TO", callback=reads(parse_sizes), help="A plan for every size in a range: 1KiB..4GiB."
)


_RATES = (
    click.option("--gpu", metavar="MODEL", help="GPU model, for nvidia-smi text: H100, A100, B200, …"),
    click.option(
        "--link-rate",
        metavar="RATE",
        callback=reads(parse_rate),
        help="Rate of one NVLink and direction, for nvidia-smi text: 25GB/s.",
    ),
    _time("--alpha", "Latency of a message; replaces the topology's (3us).", alias="--message-latency"),
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
    _time("--delay", "… and how long after the others it arrives: 5ms; µs without a unit."),
    click.option("--arrivals", metavar="TIMES|FILE", help="Arrival times, one a rank: 0,0,5ms,0; or a file."),
    click.option(
        "--size",
        metavar="SIZE",
        callback=reads(parse_size),
        help="Message per GPU: 1GiB, 64MB; bytes without a unit.",
    ),
    _time("--round-latency", "What starting a round costs a rank, beside α. [0]", "0"),
)


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
        size: int | None,
        round_latency: float,
        **rest: Any,
    ) -> Any:
        if size is not None and rest.get("sizes"):
            raise click.UsageError("--size and --sizes exclude each other.")
        if size is None:
            if not rest.get("sizes"):
                raise click.UsageError("Missing option '--size'.")
            size = rest["sizes"][0]
        if spec == "-" and arrivals == "-":
            raise InputError("--topology and --arrivals cannot both be read from standard input")
        topology = _topology(spec, gpu, link_rate, alpha)
        profile = _arrivals(topology.ranks, late, delay, arrivals)
        from latecomer.synth.question import Question

        return function(question=Question(topology, profile, size, round_latency), **rest)

    return _with(_QUESTION, command)


def _with(options: tuple[Callable[[Function], Function], ...], function: Function) -> Function:
    for option in reversed(options):
        function = option(function)
    return function


def _topology(spec: str, gpu: str | None, link_rate: float | None, alpha: float | None) -> Topology:
    from latecomer.synth.sources.spec import load_topology

    try:
        topology = load_topology(spec, gpu=gpu, link_rate_gbs=link_rate, alpha_us=alpha)
    except InputError as error:
        odd = [word.strip() for word in spec.split(",")[1:] if word.strip()[:1].isalpha()]
        odd = [word for word in odd if word not in _SWITCH_WORDS] if spec.strip().startswith("switch:") else []
        if not odd:
            raise
        near = difflib.get_close_matches(odd[0].lower(), _SWITCH_WORDS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise InputError(
            f"{spec!r}: {odd[0]!r} is not an option of a switch; after the rate may come a latency (3us), and "
            f"{' or '.join(_SWITCH_WORDS)}.{hint}"
        ) from error
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
