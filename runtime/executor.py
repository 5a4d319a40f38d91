"""`Executor`: runs one rank of a plan over a transport, as often as it is called.

    executor = Executor(Plan(schedule), TorchTransport())
    executor.all_reduce(tensor)

A plan is proven before it runs, serves one size of group, any number of elements down to one and any type that can be
added. Reductions happen in the order the plan states, so the same plan on the same data gives the same bits. Nobody
waits for the late rank before its data is needed, and there is no opening barrier. Memory beside the caller's: the
pieces that are under way, kept between calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from latecomer.runtime.adaptive import Early, Late
from latecomer.runtime.arrays import OPS
from latecomer.runtime.board import gather
from latecomer.runtime.engine import NO_LIMIT, Engine, Job
from latecomer.runtime.failures import RUNNING, CollectiveFailed, PeerLost, PlanMismatch, Status, idle
from latecomer.runtime.grouped import GroupedTransport, run_grouped
from latecomer.runtime.monitor import LOOK_S, Monitor
from latecomer.runtime.plan import Plan
from latecomer.runtime.program_plan import ProgramPlan
from latecomer.runtime.steps import Steps
from latecomer.runtime.tags import NUMBERS, tags_of
from latecomer.runtime.transports.base import Transport
from latecomer.schedules.errors import InputError

_KEPT = 256
"""Compiled step lists kept per executor; a plan with many branches, or buckets of many sizes, has as many."""


class Executor:
    """One rank of `plan`. Collective: every rank of the transport's group makes one, with the same plan.

    Parameters
    ----------
    timeout_s:
        A rank that makes no progress for so long ends the collective on every rank; None: the transport's default.
    start_timeout_s:
        How long the ranks may take to come together here, to see that they hold the same plan.
    ahead:
        How many rounds of a rank's sends may be under way at once, beyond the first.
    grace_s:
        Adaptive plans: for how long the early ranks look for the late one before they begin pre-work.

    Raises
    ------
    InputError
        The plan is for another number of ranks, or the transport has served another executor.
    PlanMismatch
        The ranks hold different plans, or some do not come.
    """

    def __init__(
        self,
        plan: Plan | ProgramPlan,
        transport: Transport,
        *,
        timeout_s: float | None = None,
        start_timeout_s: float = 120.0,
        ahead: int = 0,
        grace_s: float = 0.005,
    ) -> None:
        if plan.ranks != transport.ranks:
            raise InputError(
                f"the plan is for {plan.ranks} ranks, the group has {transport.ranks}; "
                "synthesize one for this size, or start as many processes"
            )
        if plan.late is not None and transport.grouped:
            raise InputError(
                "adaptive plans need to know on the host when a rank arrives; this transport only orders "
                "streams: use algorithm all_pairs, planned for a delay"
            )
        self.plan, self.transport = plan, transport
        self.timeout_s = transport.default_timeout_s if timeout_s is None else timeout_s
        self._ahead, self._grace_s = ahead, grace_s
        self._compiled: dict[tuple[int | None, int], Steps] = {}
        self._scratch: dict[str, Any] = {}
        self._calls = 0
        self._ended = 0
        self._engine: Engine | None = None
        self._control: Early | Late | None = None
        self._signature = ""
        self._progress = 0.0
        """When a message last ended."""
        self._looked = 0.0
        """When the transport was last asked for one."""
        self._gave_up = ""
        self._closed = False
        self._in_call = threading.Lock()
        self._lost: tuple[int, ...] = ()
        self.cut: int | None = None
        """Rounds of pre-work that the last call of an adaptive plan had room for."""
        _same_plan(plan, transport, start_timeout_s)
        self._monitor = Monitor(transport.board, transport.rank, transport.ranks, self._status, self._stalled)

    def all_reduce(self, buffer: Any, *, op: str = "sum", out: Any = None) -> Any:
        """Reduce `buffer` over all ranks into `out` on each; `out` None: into `buffer`. Returns where the result is.

        For plans of other collectives: run them on buffers of the whole message.

        Raises `InputError` before anything is sent, `CollectiveFailed` when the collective cannot end. After that, as
        after any other error, which the other ranks are told, the executor and its transport are of no more use.
        """
        self._is_open()
        if not self._in_call.acquire(blocking=False):
            raise InputError("this executor is in a call already, of another thread; make one executor for each")
        try:
            return self._checked(buffer, op, out)
        finally:
            self._in_call.release()

    def prepare(self, elements: int, cuts: Iterable[int] | None = None) -> None:
        """Make what calls of `elements` elements need, so that none of them has to: the trunk and the branches after
        `cuts` (None: all, which for many segments takes seconds)."""
        self._is_open()
        for cut in (None, *(self.plan.cuts if cuts is None else cuts)):
            self._steps(cut, elements)

    def lost(self, reason: str) -> CollectiveFailed:
        """To raise where ranks fail each other between two collectives: where each stands, as far as it answers."""
        self._monitor.raise_alarm(self._calls, reason)
        return self._monitor.failure()

    def close(self) -> None:
        """Let go of threads and memory. The process group stays as it is. Closing twice is allowed."""
        self._closed = True
        self._monitor.close(self._ended)
        self.transport.close()
        self._scratch.clear()

    # -- one call ---------------------------------------------------------------------------------------------------

    def _is_open(self) -> None:
        if self._closed:
            raise InputError("this executor is closed; make another, on a transport of its own")

    def _checked(self, buffer: Any, op: str, out: Any) -> Any:
        arrays, multiple = self.transport.arrays, self.plan.multiple
        source = arrays.flat(buffer, "the buffer")
        target = source if out is None else arrays.flat(out, "out")
        self._fits(source, target, op)
        if self._monitor.alarm is not None:
            raise self._monitor.again()
        elements = len(source)
        self._steps(None, -(-elements // multiple) * multiple)  # where this fails, nothing has been sent
        self._signature = f"{elements} elements of {arrays.dtype(source)}, {op}"
        self._calls += 1
        try:
            if elements:
                self._call(source, target, op)
        except CollectiveFailed:
            raise
        except BaseException as error:  # the others would wait for this rank
            self._gave_up = f"{type(error).__name__}: {error}"
            self._monitor.raise_alarm(self._calls, f"rank {self.transport.rank} gave up: {self._gave_up}")
            raise
        self._ended = self._calls
        return buffer if out is None else out

    def _call(self, source: Any, target: Any, op: str) -> None:
        arrays = self.transport.arrays
        if len(source) % self.plan.multiple:
            self._run_padded(source, target, op)
        elif self.plan.separate_input and arrays.same_memory(source, target):
            kept = arrays.empty(len(source), source)
            arrays.copy(source, kept)
            self._run(kept, target, op)
        else:
            self._run(source, target, op)
        if op == "avg":
            arrays.divide(target, self.plan.ranks)

    def _fits(self, source: Any, target: Any, op: str) -> None:
        arrays = self.transport.arrays
        if op not in OPS:
            raise InputError(f"no reduction is called {op!r}; there are {', '.join(OPS)}")
        if op == "avg" and not arrays.floating(source):
            raise InputError(f"avg needs a floating type, not {arrays.dtype(source)}; reduce with sum and divide")
        if len(source) != len(target) or source.dtype != target.dtype:
            raise InputError("buffer and out must have the same number of elements and the same type")
        places = [str(getattr(array, "device", "cpu")) for array in (source, target)]
        if places[0] != places[1]:
            raise InputError(f"buffer and out must be on the same device, not on {' and '.join(places)}")
        if not arrays.same_memory(source, target) and arrays.overlap(source, target):
            raise InputError("buffer and out overlap in part; they must be the same memory, or have none in common")
        if not self.plan.reduces and op != "sum":
            raise InputError(f"this program gathers and reduces nothing, so op={op!r} means nothing; leave it out")
        elements, multiple = len(source), self.plan.multiple
        if elements % multiple and not self.plan.pads:
            less, more = elements // multiple * multiple, -(-elements // multiple) * multiple
            raise InputError(
                f"{elements} elements do not divide into the program's {multiple} chunks, and padding would move the "
                f"ranks' pieces; send a multiple of {multiple}: {f'{less} or ' if less else ''}{more}"
            )
        arrays.try_out(op if self.plan.reduces else None, source, target)

    def _run_padded(self, source: Any, target: Any, op: str) -> None:
        """A program serves whole chunks only. What is added at the end is reduced too, and dropped."""
        arrays, elements, multiple = self.transport.arrays, len(source), self.plan.multiple
        padded = [arrays.empty(-(-elements // multiple) * multiple, source) for _ in range(2)]
        for array in padded:
            array[elements:] = 0
        arrays.copy(source, padded[0][:elements])
        self._run(padded[0], padded[1], op)
        arrays.copy(padded[1][:elements], target)

    def _run(self, source: Any, target: Any, op: str) -> None:
        arrays, plan, transport = self.transport.arrays, self.plan, self.transport
        if plan.one_buffer and not arrays.same_memory(source, target):
            arrays.copy(source, target)
            source = target
        steps = self._steps(None, len(source))
        known = [self._compiled.get((cut, len(source))) for cut in plan.cuts]
        most = max([steps.scratch, *(branch.scratch for branch in known if branch is not None)])
        buffers = {"input": source, "output": target, "scratch": self._memory(most, source)}
        tags = tags_of(transport.slot, f"{plan.digest} {self._calls} {self._signature}")
        job = Job(buffers, op, tags)
        if isinstance(transport, GroupedTransport) and transport.grouped:
            run_grouped(transport, steps.steps, job)
        else:
            engine = Engine(transport, job, keep_rounds=plan.keep_rounds, ahead=self._ahead)
            try:
                steps = self._drive(engine, steps, buffers, tags)
            except PeerLost as error:
                self._lost = (error.peer,)
                self._monitor.raise_alarm(self._calls, str(error))
            if self._monitor.alarm is not None:
                raise self._monitor.failure()
            self._engine = self._control = None
        if not arrays.same_memory(source, target):
            for start, stop in steps.untouched:
                arrays.copy(source[start:stop], target[start:stop])

    def _drive(self, engine: Engine, steps: Steps, buffers: dict[str, Any], tags: int) -> Steps:
        """Runs until the collective has ended (or the alarm is raised); returns the steps that were run."""
        plan, transport = self.plan, self.transport
        control: Early | Late | None = None
        self._progress = self._looked = time.monotonic()
        if plan.late is None:
            engine.load(steps)
        elif plan.late == transport.rank:
            control = Late(transport, tags)
        else:
            control = Early(transport, tags, plan.late)
            engine.sends_begin = True
            engine.load(steps)
        self._engine, self._control = engine, control
        if isinstance(control, Early):
            self._give_grace(control, engine)
        agreed, branch = control is None, None
        while True:
            more = engine.pump()
            if branch is not None and (branch.scratch <= len(buffers["scratch"]) or engine.through(engine.limit)):
                # The branch's cells begin with the trunk's, so what is under way may stay where it is; only where the
                # memory is too small must it land first.
                if branch.scratch > len(buffers["scratch"]):
                    kept, buffers["scratch"] = buffers["scratch"], self._memory(branch.scratch, buffers["scratch"])
                    transport.arrays.copy(kept, buffers["scratch"][: len(kept)])
                steps, branch = branch, None
                engine.limit, engine.sends_begin = NO_LIMIT, False
                engine.load(steps)
                continue
            if agreed and branch is None and engine.finished and not (control and control.open):
                return steps
            key = self._next(engine, more)
            if key is None:
                return steps
            if key >= 0:
                engine.ended(key)
                continue
            assert control is not None
            cut = control.ended(key, engine)
            if cut is not None:
                self.cut, agreed = cut, True
                branch = self._steps(cut, len(buffers["input"]))
                engine.limit, engine.sends_begin = cut, False

    def _give_grace(self, control: Early, engine: Engine) -> None:
        """Where nobody is late, nothing is begun that all would have to wait for, and the answers need not queue."""
        engine.limit = 0
        key = self.transport.wait(self._grace_s)
        if key is None:
            engine.limit = NO_LIMIT
        else:
            control.ended(key, engine)

    def _next(self, engine: Engine, more: bool) -> int | None:
        """The next key; None when the alarm was raised, by this rank's timeout or another's.

        `more`: as long as no message has ended, `engine` has receives to post.
        """
        while True:
            key = self.transport.wait(0.0 if more else LOOK_S)
            now = self._looked = time.monotonic()
            if key is not None:
                self._progress = now
                return key
            if more:
                more = engine.pump()
                continue
            if self._monitor.alarm is None and now - self._progress > self.timeout_s:
                self._monitor.raise_alarm(
                    self._calls, f"rank {self.transport.rank} made no progress for {self.timeout_s:g} s"
                )
            if self._monitor.alarm is not None:
                return None

    # -- what is kept -----------------------------------------------------------------------------------------------

    def _steps(self, cut: int | None, elements: int) -> Steps:
        """The trunk's steps (None), or those of the branch after `cut` rounds."""
        key = (cut, elements)
        if key not in self._compiled:
            if len(self._compiled) >= _KEPT:
                del self._compiled[next(iter(self._compiled))]
            steps = self.plan.steps(self.transport.rank, cut, elements)
            if max((step.number for step in steps.steps), default=0) >= NUMBERS:
                raise InputError("more messages between two ranks than tags can tell apart; use fewer chunks")
            _ = steps.graph  # made here, in `prepare` where it is called, not by the first call's engine
            self._compiled[key] = steps
        return self._compiled[key]

    def _memory(self, elements: int, like: Any) -> Any:
        key = f"{like.dtype} {getattr(like, 'device', 'cpu')}"
        if key not in self._scratch or len(self._scratch[key]) < elements:
            self._scratch[key] = self.transport.arrays.empty(elements, like)
        return self._scratch[key]

    def _status(self) -> Status:
        engine = self._engine
        if engine is None:
            if self._calls == self._ended:
                return idle(self._ended)
            return Status(
                self._calls, RUNNING, self._signature, 0, 0, "its first message", (), gave_up=self._gave_up
            )  # fmt: skip
        steps, unfinished = engine.steps, engine.unfinished()
        control = self._control.waits() if self._control is not None else ()
        waits = [steps[i].peer for i in unfinished if steps[i].kind == "receive"]
        waits = waits or [steps[i].peer for i in unfinished if steps[i].kind == "send"]
        step = str(steps[unfinished[0]]) if unfinished else "agreement on the cut" if control else "its end"
        return Status(
            self._calls, RUNNING, self._signature, engine.done, len(steps), step,
            tuple(dict.fromkeys([*waits, *control])), self._lost, self._gave_up, time.monotonic() - self._looked,
        )  # fmt: skip

    def _stalled(self) -> float:
        return time.monotonic() - self._progress if self._engine is not None else 0.0


def _same_plan(plan: Plan | ProgramPlan, transport: Transport, timeout_s: float) -> None:
    if transport.board.read(f"plan/{transport.rank}") is not None:
        raise InputError("this transport has, or had, an executor already; make another transport for this one")
    transport.board.write(f"plan/{transport.rank}", f"{plan.digest} {plan.name}")
    said = gather(transport.board, "plan", transport.ranks, timeout_s)
    missing = sorted(set(range(transport.ranks)) - set(said))
    if missing:
        raise PlanMismatch(f"after {timeout_s:g} s no executor was made on ranks {', '.join(map(str, missing))}")
    if len(set(said.values())) > 1:
        lines = "\n".join(f"  rank {rank}: {said[rank]}" for rank in range(transport.ranks))
        raise PlanMismatch(f"the ranks hold different plans (digest, algorithm); give all the same file\n{lines}")
