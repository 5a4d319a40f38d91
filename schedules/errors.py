"""The one exception tree of latecomer.

Every message says what was wrong, where, and what to do about it. The command line prints
the message alone (no traceback) and exits with `exit_code`: 1 when the answer to the question is "no",
2 when the question could not be asked (bad usage, unreadable input).
"""

from __future__ import annotations


class LatecomerError(Exception):
    """Root of the tree. `exit_code` is what the command line exits with."""

    exit_code = 2


class InputError(LatecomerError):
    """A value or a file cannot be used; the message names it and says what would work."""


class TopologyError(InputError):
    """A topology cannot be read, is not well formed, or lacks what was asked of it."""


class NotApplicable(InputError):
    """An algorithm does not serve this case; the message names one that does."""


class LimitExceeded(InputError):
    """A target's limit would be broken; `limit` is its name."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class IncorrectSchedule(LatecomerError):
    """A schedule does not compute its collective. Carries the first place where that shows."""

    exit_code = 1

    def __init__(
        self, message: str, *, round: int | None = None, rank: int | None = None, chunk: int | None = None
    ) -> None:
        where = [
            f"{name} {value}"
            for name, value in (("round", round), ("rank", rank), ("chunk", chunk))
            if value is not None
        ]
        super().__init__(f"{', '.join(where)}: {message}" if where else message)
        self.round, self.rank, self.chunk = round, rank, chunk


class IncorrectProgram(LatecomerError):
    """A program does not compute its collective on every rank, or may not end."""

    exit_code = 1

    def __init__(self, message: str, *, gpu: int | None = None, tb: int | None = None, step: int | None = None) -> None:
        where = "/".join(
            f"{name} {value}" for name, value in (("gpu", gpu), ("tb", tb), ("step", step)) if value is not None
        )
        super().__init__(f"{where}: {message}" if where else message)
        self.gpu, self.tb, self.step = gpu, tb, step
