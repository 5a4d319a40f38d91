"""Measuring collectives: algorithms × sizes × delays × seeds, every result checked, the late rank late by the clock.

All ranks start at an agreed time; the late one sleeps its delay first. Times are of CLOCK_MONOTONIC, which all
processes of a machine share: `time_us` is from the last arrival to the last rank's completion, `own_us` from a rank's
own arrival to its completion (the largest of the ranks). Ranks on several machines need a clock that agrees to a
fraction of that.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latecomer.runtime.calibrate import Features, features
from latecomer.runtime.data import compare, contribution, reference
from latecomer.runtime.executor import Executor
from latecomer.runtime.failures import CollectiveFailed
from latecomer.runtime.plan import Plan
from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.errors import InputError, NotApplicable
from latecomer.schedules.topology import Topology
from latecomer.synth.question import Question
from latecomer.synth.registry import named
from latecomer.synth.select import build

BACKEND = "backend"
"""As an algorithm's name: the backend's own all_reduce."""
CUTS = 3
"""Branches of an adaptive plan made before the clock starts: so many either side of the one the model expects."""
START_S = 0.1
"""From the agreement on a start to the start."""


@dataclass(frozen=True)
class Case:
    """One thing to measure. `chunks` None: the model chooses."""

    algorithm: str
    size_bytes: int
    late: int
    delay_us: float
    seed: int = 0
    chunks: int | None = None


@dataclass(frozen=True)
class Row:
    """What was measured, times in µs. `busbw_gbs` is nccl-tests': 2(n-1)/n · size / time.

    `rounds`, `messages`, `volume`: see `latecomer.runtime.calibrate`; None where pre-work was not hidden.
    """

    algorithm: str
    ranks: int
    size_bytes: int
    late: int
    delay_us: float
    seed: int
    chunks: int
    runs: int
    time_us: float
    time_min_us: float
    time_max_us: float
    own_us: float
    busbw_gbs: float
    model_us: float | None
    cut: int | None
    rounds: int | None
    messages: int | None
    volume: float | None
    times_us: list[float] = field(default_factory=list, repr=False)


class Prepared:
    """A case with its plan: made before the clock starts, or before processes are forked."""

    def __init__(self, case: Case, topology: Topology, round_latency_us: float = 0.0) -> None:
        """Raises `NotApplicable` where the algorithm does not serve the topology."""
        self.case, self.ranks = case, topology.ranks
        self.plan: Plan | None = None
        self.model_us: float | None = None
        self.features: Features | None = None
        self.cuts = range(0)
        if case.algorithm == BACKEND:
            return
        arrivals = ArrivalProfile.late(topology.ranks, case.late, case.delay_us)
        question = Question(topology, arrivals, case.size_bytes, round_latency_us)
        schedule = build(named(case.algorithm), question, case.chunks)
        self.plan = Plan(schedule)
        simulation = question.simulate(schedule)
        self.model_us = simulation.time_us
        if self.plan.cuts:
            likely = simulation.schedule.prework.rounds
            self.cuts = range(max(0, likely - CUTS), min(self.plan.cuts.stop, likely + CUTS + 1))
            for cut in self.cuts:
                self.plan.branch(cut)
        if simulation.prework_us <= case.delay_us:
            self.features = features(simulation.schedule)

    @property
    def elements(self) -> int:
        """float32 elements of the message."""
        return max(1, self.case.size_bytes // 4)


def prepare(
    cases: Sequence[Case], topology: Topology, round_latency_us: float, skipped: Callable[[Case, str], None]
) -> list[Prepared]:
    """The cases that apply; the others are told to `skipped` with the reason."""
    ready = []
    for case in cases:
        try:
            ready.append(Prepared(case, topology, round_latency_us))
        except NotApplicable as error:
            skipped(case, str(error))
    return ready


class References:
    """The exact results, one a size and seed, made once."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._known: dict[tuple[int, int], NDArray[np.float64]] = {}

    def of(self, elements: int, seed: int) -> NDArray[np.float64]:
        """The sum that `elements` elements of `seed` should give."""
        if (elements, seed) not in self._known:
            self._known[elements, seed] = reference(elements, seed, self._ranks)
        return self._known[elements, seed]


def measure(
    cases: Sequence[Prepared],
    *,
    runs: int,
    references: References,
    device: str = "cpu",
    timeout_s: float | None = None,
    ahead: int = 0,
) -> Iterator[Row]:
    """One row per case, on every rank. Collective; the process group must be initialized.

    A first run of each case is not counted: connections are made and step lists compiled in it.
    """
    import torch
    import torch.distributed as dist

    from latecomer.runtime.transports.torch_p2p import TorchTransport

    rank, ranks = dist.get_rank(), dist.get_world_size()
    for prepared in cases:
        case = prepared.case
        if prepared.ranks != ranks:
            raise InputError(f"prepared for {prepared.ranks} ranks, but there are {ranks}")
        executor = None
        if prepared.plan is not None:
            executor = Executor(prepared.plan, TorchTransport(), timeout_s=timeout_s, ahead=ahead)
            executor.prepare(prepared.elements, prepared.cuts)
            # Step lists are many small objects; a collector that walks them all stops a rank for a tenth of a second.
            gc.collect()
            gc.freeze()
        own = torch.from_numpy(contribution(prepared.elements, case.seed, rank)).to(device)
        wanted = references.of(prepared.elements, case.seed)
        samples = []
        for run in range(runs + 1):
            buffer = own.clone()
            with saying_who(executor):
                arrived, done = _one(executor, buffer, case, rank)
                compare(buffer.cpu().numpy(), wanted, ranks, "float32")
                if run:
                    samples.append(gather_times(arrived, done, ranks))
        cut = executor.cut if executor is not None else None
        if executor is not None:
            executor.close()
        yield _row(prepared, samples, cut)


def _one(executor: Executor | None, buffer: Any, case: Case, rank: int) -> tuple[float, float]:
    """Arrival and completion of this rank, s."""
    import torch
    import torch.distributed as dist

    start_together(case.delay_us if rank == case.late else 0.0, str(buffer.device))
    arrived = time.monotonic()
    if executor is None:
        dist.all_reduce(buffer)
    else:
        executor.all_reduce(buffer)
    if buffer.is_cuda:
        torch.cuda.synchronize(buffer.device)
    return arrived, time.monotonic()


@contextmanager
def saying_who(executor: Executor | None) -> Iterator[None]:
    """torch's own collectives say no more than that they failed: say where each rank stands (`CollectiveFailed`)."""
    try:
        yield
    except RuntimeError as error:
        reason = f"the ranks lost each other: {str(error).splitlines()[0][-160:]}"
        raise executor.lost(reason) if executor is not None else CollectiveFailed(reason) from error


def start_together(late_us: float, device: str) -> None:
    """Returns on all ranks at the same time, but `late_us` later on this one."""
    import torch
    import torch.distributed as dist

    start = torch.tensor([time.monotonic() + START_S], dtype=torch.float64, device=device)
    dist.all_reduce(start, op=dist.ReduceOp.MAX)
    time.sleep(max(0.0, float(start.item()) + late_us / 1e6 - time.monotonic()))


def gather_times(arrived: float, done: float, ranks: int) -> NDArray[np.float64]:
    """Shape (ranks, 2): arrival and completion of every rank, s."""
    import torch
    import torch.distributed as dist

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    mine = torch.tensor([arrived, done], dtype=torch.float64, device=device)
    every = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(every, mine)
    return np.stack([times.cpu().numpy() for times in every])


def _row(prepared: Prepared, samples: list[NDArray[np.float64]], cut: int | None) -> Row:
    case, n = prepared.case, prepared.ranks
    times = [float(s[:, 1].max() - s[:, 0].max()) * 1e6 for s in samples]
    own = [float((s[:, 1] - s[:, 0]).max()) * 1e6 for s in samples]
    middle = median(times)
    return Row(
        algorithm=case.algorithm,
        ranks=n,
        size_bytes=case.size_bytes,
        late=case.late,
        delay_us=case.delay_us,
        seed=case.seed,
        chunks=len(prepared.plan.schedule.chunks) if prepared.plan else 0,
        runs=len(times),
        time_us=middle,
        time_min_us=min(times),
        time_max_us=max(times),
        own_us=median(own),
        busbw_gbs=2 * (n - 1) / n * case.size_bytes / middle / 1e3,
        model_us=prepared.model_us,
        cut=cut,
        rounds=prepared.features.rounds if prepared.features else None,
        messages=prepared.features.messages if prepared.features else None,
        volume=prepared.features.volume if prepared.features else None,
        times_us=times,
    )
