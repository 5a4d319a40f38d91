"""Options of the commands that run under torchrun."""

from __future__ import annotations

import click

from latecomer.cli.options import reads
from latecomer.schedules.errors import InputError

_LONGEST_S = 1e6


def parse_seconds(text: str) -> float:
    """Seconds in `text`, above 0. Raises `InputError`."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _LONGEST_S:  # nan is not
        raise InputError(f"{text[:40]!r} is not a number of seconds, above 0 and at most {_LONGEST_S:.0f}")
    return value


def parse_whole(text: str, what: str, least: int) -> int:
    """The whole number in `text`, at least `least` and of at most 18 digits. Raises `InputError`."""
    value = int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else -1
    if value < least:
        raise InputError(f"{what} {text[:40]!r} is not a whole number of {least} or more")
    return value


late_option = click.option("--late", type=click.IntRange(0), metavar="RANK", help="The late rank. [the last]")
backend_option = click.option("--backend", metavar="NAME", help="Of torch.distributed. [nccl with GPUs, gloo without]")
timeout_option = click.option(
    "--timeout", "timeout_s", callback=reads(parse_seconds), metavar="S", help="Without progress for so long: give up."
)
