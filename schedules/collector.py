"""Python's garbage collector, out of the way where millions of small tuples without cycles are made.

It would walk over all of them again and again and free nothing: a third of the time that compiling a large schedule
takes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """The collector is off meanwhile, in this whole process. Also usable as a decorator."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
