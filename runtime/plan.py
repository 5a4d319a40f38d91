"""`Plan`: what an executor runs: a proven schedule as operation lists, the ones of its branches made when needed."""

from __future__ import annotations

import hashlib

from latecomer.codegen.from_schedule import operations
from latecomer.codegen.operations import OperationList
from latecomer.runtime.steps import Steps, compile_steps
from latecomer.schedules.check import check
from latecomer.schedules.errors import InputError, LatecomerError
from latecomer.schedules.schedule import Schedule


class Plan:
    """A schedule that has been checked.

    Attributes
    ----------
    name:
        The algorithm.
    ranks:
        The only size of a group it runs on.
    digest:
        Equal for equal plans: all ranks of a group must hold the same.
    trunk:
        All operations; for an adaptive schedule, those of the pre-work, of which a prefix will run.
    late:
        The rank that decides which branch follows, or None for a plan without branches.
    late_rank:
        The last rank to arrive, as planned; None where nobody is late.
    multiple, pads, reduces, one_buffer, separate_input:
        As for a program (`latecomer.runtime.program_plan`); a schedule serves any number of elements, in place or not.
    keep_rounds:
        A rank's sends keep the order of rounds even where a later one could go first (one-port schedules).
    """

    multiple = 1
    pads = True
    reduces = True
    one_buffer = False
    separate_input = False

    def __init__(self, schedule: Schedule) -> None:
        """Raises `IncorrectSchedule`, and `InputError` for one whose roles are open until the ranks arrive."""
        if schedule.bind_at != "plan":
            raise InputError("this schedule binds its roles at arrival; the executor needs them bound: bound_to(…)")
        check(schedule)
        self.schedule = schedule
        self.name = schedule.provenance.algorithm
        self.ranks = schedule.ranks
        self.digest = _digest(schedule)
        self.keep_rounds = schedule.ports == "exclusive"
        self.late: int | None = None
        late_roles = schedule.late_roles
        self.late_rank = schedule.binding[late_roles[-1]] if late_roles else None
        if len(schedule.branches) > 1:
            if len(schedule.late_roles) != 1:
                raise InputError("the executor runs branches for one late rank only")
            self.late = schedule.binding[schedule.late_roles[0]]
        only = schedule.resolve(0) if len(schedule.branches) == 1 else schedule
        self.trunk = operations(only.model_copy(update={"branches": ()}))
        self._branches: dict[int, OperationList] = {}

    @property
    def cuts(self) -> range:
        """The numbers of pre-work rounds after which the plan can go on; empty without branches."""
        return range(len(self.schedule.branches) if self.late is not None else 0)

    def branch(self, cut: int) -> OperationList:
        """All operations where `cut` rounds of pre-work were started.

        Every rank's list begins with the operations of the trunk's first `cut` rounds, so a rank that has started them
        goes on in it.
        """
        if cut not in self._branches:
            branch = operations(self.schedule.resolve(cut))
            for rank in range(self.ranks):
                common = [op for op in self.trunk.of(rank) if op.round < cut]
                if list(branch.of(rank)[: len(common)]) != common:
                    raise LatecomerError(
                        f"rank {rank}: the branch after {cut} rounds does not begin as the pre-work does; "
                        "please report this"
                    )
            self._branches[cut] = branch
        return self._branches[cut]

    def steps(self, rank: int, cut: int | None, elements: int) -> Steps:
        """What `rank` does for `elements` elements: the trunk's steps, or those of the branch after `cut` rounds."""
        return compile_steps(self.trunk if cut is None else self.branch(cut), rank, elements)

    def prepare(self) -> None:
        """Make the operation lists of all branches now."""
        for cut in self.cuts:
            self.branch(cut)


def _digest(schedule: Schedule) -> str:
    """Of what decides who sends what: not where the schedule comes from, nor what was proven of it."""
    said = hashlib.sha256()
    for fact in (schedule.collective, schedule.ports, schedule.binding, schedule.stages, schedule.chunks.weights):
        said.update(repr(fact).encode())
    for transfers in (schedule.transfers, *(branch.transfers for branch in schedule.branches)):
        for column in transfers.columns():
            said.update(len(column).to_bytes(8, "little") + column.tobytes())
    return said.hexdigest()[:16]
