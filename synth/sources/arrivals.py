"""`load_arrivals`: from what a user writes after `--arrivals` to an `ArrivalProfile`."""

from __future__ import annotations

import os
import re
from typing import IO, Any

from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.errors import InputError
from latecomer.synth.sources.files import read_text


def load_arrivals(spec: str, ranks: int, *, stdin: IO[Any] | None = None) -> ArrivalProfile:
    """The arrival times that `spec` gives: times as in `0,0,5ms,0`, a JSON or CSV file, or `-`.

    Raises `InputError` for a file that cannot be read, times that cannot, or a number of times that is
    not `ranks`.
    """
    if spec != "-" and not os.path.exists(spec):
        if not re.match(r"\s*[-+.\d]", spec):
            raise InputError(
                f"{spec!r} is neither a file nor a list of times; write one time per rank, as in 0,0,5ms,0"
            )
        return ArrivalProfile.from_text(spec, ranks)
    text = read_text(spec, stdin=stdin)
    source = "standard input" if spec == "-" else spec
    if text.lstrip().startswith(("[", "{")):
        return ArrivalProfile.from_json(text, ranks, source)
    return ArrivalProfile.from_csv(text, ranks, source)
