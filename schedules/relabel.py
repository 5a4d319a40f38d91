"""`relabel`: a plan for one late rank becomes a plan for any."""

from __future__ import annotations

from collections.abc import Sequence

from latecomer.schedules.errors import InputError
from latecomer.schedules.schedule import Schedule


def relabel(schedule: Schedule, permutation: Sequence[int]) -> Schedule:
    """What rank r did, rank `permutation[r]` does.

    before: binding b   after: binding permutation[b[role]]; transfers, chunks and proof are in roles and stay the same.
    The certificate stays with the schedule: on a network whose ranks are alike it holds for the new one too.

    Raises `InputError` unless `permutation` names each rank once.

    >>> from latecomer.synth.algorithms import ring
    >>> relabel(ring.schedule(3), [2, 0, 1]).binding
    (2, 0, 1)
    """
    if sorted(permutation) != list(range(schedule.ranks)):
        raise InputError(f"a permutation of {schedule.ranks} ranks names each of 0 … {schedule.ranks - 1} once")
    return schedule.bound_to([permutation[rank] for rank in schedule.binding])


def for_late_rank(schedule: Schedule, late: int) -> Schedule:
    """The plan with its (last) late role played by rank `late`, which trades places with the rank that played it.

    Raises `InputError` for a schedule in which nobody is late, or a rank that is not there.
    """
    if not schedule.late_roles:
        raise InputError(f"{schedule.provenance.algorithm} has no late rank to move")
    if not 0 <= late < schedule.ranks:
        raise InputError(f"late rank {late} is out of range: ranks are 0 … {schedule.ranks - 1}")
    role = max(schedule.late_roles, key=lambda r: schedule.stages[r])
    trade = list(range(schedule.ranks))
    trade[schedule.binding[role]], trade[late] = late, schedule.binding[role]
    return relabel(schedule, trade)
