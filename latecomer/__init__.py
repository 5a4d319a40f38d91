"""AllReduce when a GPU is late: schedules with proofs, and compilers that turn them into programs.

The public API in a few names; each is imported when it is first used.

>>> import latecomer
>>> topology = latecomer.load_topology("dgx-h100")
>>> plan = latecomer.synthesize(topology, latecomer.ArrivalProfile.late(8, 3, 5000.0), 2**30)
>>> latecomer.check(plan).rounds
34
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "ArrivalProfile": "latecomer.schedules.arrivals",
    "LatecomerError": "latecomer.schedules.errors",
    "Question": "latecomer.synth.question",
    "Schedule": "latecomer.schedules.schedule",
    "Topology": "latecomer.schedules.topology",
    "bounds": "latecomer.schedules.bounds",
    "check": "latecomer.schedules.check",
    "compare": "latecomer.synth.select",
    "load_topology": "latecomer.synth.sources.spec",
    "plan_set": "latecomer.synth.plan_set",
    "relabel": "latecomer.schedules.relabel",
    "simulate": "latecomer.schedules.simulate",
    "synthesize": "latecomer.synth.synthesize",
}

__all__ = ["__version__", *sorted(_HOMES)]

if TYPE_CHECKING:
    from latecomer.schedules.arrivals import ArrivalProfile as ArrivalProfile
    from latecomer.schedules.bounds import bounds as bounds
    from latecomer.schedules.check import check as check
    from latecomer.schedules.errors import LatecomerError as LatecomerError
    from latecomer.schedules.relabel import relabel as relabel
    from latecomer.schedules.schedule import Schedule as Schedule
    from latecomer.schedules.simulate import simulate as simulate
    from latecomer.schedules.topology import Topology as Topology
    from latecomer.synth.plan_set import plan_set as plan_set
    from latecomer.synth.question import Question as Question
    from latecomer.synth.select import compare as compare
    from latecomer.synth.sources.spec import load_topology as load_topology
    from latecomer.synth.synthesize import synthesize as synthesize


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'latecomer' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
