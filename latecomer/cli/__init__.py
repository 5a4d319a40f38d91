"""The command line, one file a command.

A command's module is imported when the command is called, so `latecomer --help` needs click alone. To add
a command: write `latecomer/cli/<name>.py` with a click command called `command`, and a line in `COMMANDS`.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from typing import Final, NoReturn

import click

from latecomer import __version__
from latecomer.schedules.errors import LatecomerError, LimitExceeded

COMMANDS: Final = {
    "topology": "What was understood of a topology: ranks, links, rates, warnings.",
    "synth": "Synthesize a schedule, prove it, and say what it costs.",
    "compare": "Every algorithm against the bound.",
    "export": "Compile a schedule for a runtime, read the file back, prove it again.",
    "check": "Prove a schedule or a program, or say where it is wrong.",
    "lint": "Will this runtime pick this program for this call? Yes, or why not.",
    "simulate": "When a schedule's messages start and end, and when every rank is done.",
    "bounds": "Lower bounds: what no schedule can beat.",
    "show": "A schedule or a program as a table.",
    "bench": "Measure collectives under torchrun, every result checked.",
    "calibrate": "Latencies and rate from measurements.",
}
"""Name → what `latecomer --help` says about it, in the order of a first use."""

BROKEN_PIPE_EXIT: Final = 141
"""What a shell reports for a program that SIGPIPE ended."""
INTERRUPTED_EXIT: Final = 130
"""What a shell reports for a program that SIGINT ended."""


class _Commands(click.Group):
    """Imports a command when it is called, and turns every error into one message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"latecomer.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command is called {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except LimitExceeded as error:
            _fail(ctx, f"{error} (limit: {error.limit})", error.exit_code)
        except LatecomerError as error:
            _fail(ctx, str(error), error.exit_code)
        except click.UsageError as error:
            path = " ".join(filter(None, (ctx.command_path, ctx.invoked_subcommand)))
            _fail(ctx, f"{error.format_message()}\nsee {path} --help", 2)
        except BrokenPipeError:
            # Nobody reads on. What is still in the buffer goes nowhere, so that the exit stays quiet too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(BROKEN_PIPE_EXIT)
        except OSError as error:  # a full disk behind standard output; files are written with errors of their own
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _fail(ctx, f"cannot write the output: {error.strerror}", 2)
        except KeyboardInterrupt:
            _fail(ctx, "interrupted", INTERRUPTED_EXIT)


def _fail(ctx: click.Context, message: str, exit_code: int) -> NoReturn:
    click.echo(f"error: {message}", err=True)
    ctx.exit(exit_code)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 yes, 1 the answer is no, 2 bad usage or unreadable input.",
)
@click.version_option(__version__, prog_name="latecomer")
def cli() -> None:
    """AllReduce when a GPU is late: schedules with proofs, and compilers that turn them into programs.

    \b
      nvidia-smi topo -m > topo.txt
      latecomer synth --topology topo.txt --gpu H100 --late 3 --delay 5ms --size 1GiB -o plan.json
      latecomer export plan.json --to msccl-executor -o plan.xml
    """


def main() -> None:
    """What the installed command `latecomer` calls."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # α on a terminal that has none
    cli(prog_name="latecomer")
