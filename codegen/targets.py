"""What each runtime accepts: limits and step types as data. Source: the runtimes' parsers and kernels."""

from __future__ import annotations

from dataclasses import dataclass

from latecomer.schedules.errors import InputError
from latecomer.schedules.program import StepType

ALL_STEPS: frozenset[StepType] = frozenset({"s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy", "re", "nop"})

FUSED: frozenset[StepType] = frozenset({"rcs", "rrc", "rrs", "rrcs"})
"""Steps that receive and do something more; not every build has kernels for them."""
MAX_CNT = 71
"""Chunks one step may move; every runtime."""
MAX_FUSED_REDUCES = 16
"""Consecutive `re` steps a parser merges into one; beyond it the device array overruns."""
CONNECTIONS_PER_CHANNEL = 32
"""Sending threadblocks per (gpu, channel), and receiving ones; every runtime."""
NODE_BUDGET = 4095
"""1 + number of gpus + threadblocks and steps of one rank; every runtime."""
MAX_NAME = 63


@dataclass(frozen=True)
class Target:
    """A runtime that loads MSCCL XML.

    Attributes
    ----------
    threadblocks:
        Per gpu.
    steps:
        Per threadblock, nops included.
    depid:
        Greatest number of a threadblock that can be waited for.
    max_bytes_exclusive:
        maxBytes itself is no longer served, and 0 means never instead of no limit.
    reduce_scatter:
        Spelling of that collective; None where no single spelling works.
    both_placements:
        One file can serve in-place and out-of-place calls.
    """

    name: str
    threadblocks: int
    steps: int
    channels: int
    depid: int
    types: frozenset[StepType]
    max_bytes_exclusive: bool
    reduce_scatter: str | None
    both_placements: bool
    needs_name: bool

    @property
    def fused(self) -> bool:
        """Has steps that receive and reduce in one."""
        return "rrc" in self.types


_PLAIN: frozenset[StepType] = frozenset({"s", "r", "cpy", "re", "nop"})

TARGETS = {
    target.name: target
    for target in (
        Target("msccl-executor", 1024, 64, 32, 127, ALL_STEPS, False, "reducescatter", True, False),
        Target("msccl", 216, 256, 32, 127, ALL_STEPS, True, "reduce_scatter", False, True),
        Target("rccl", 64, 64, 128, 63, _PLAIN, False, "reducescatter", True, False),
        # What all three load: the least of every limit.
        Target("portable", 64, 64, 32, 63, _PLAIN, True, None, False, True),
    )
}


LOADING = {
    "msccl": "NCCL_ALGO=MSCCL,RING,TREE MSCCL_XML_FILES=FILE (several: colons between, at most 4)",
    "msccl-executor": "MSCCL_ALGO_DIR=DIR, a directory with such files and nothing else",
    "rccl": "MSCCL_ALGO_DIR=DIR, a directory with only such files; off MI300X RCCL_MSCCL_FORCE_ENABLE=1",
    "portable": "as for the runtime: MSCCL_XML_FILES=FILE (msccl), MSCCL_ALGO_DIR=DIR (msccl-executor, rccl)",
}
"""The environment in which a runtime finds the files; NCCL_DEBUG=INFO then says that it did."""


def target(name: str) -> Target:
    """The target called `name`. Raises `InputError` that lists the names there are."""
    if name not in TARGETS:
        raise InputError(f"no MSCCL target is called {name!r}; there are {', '.join(sorted(TARGETS))}")
    return TARGETS[name]
