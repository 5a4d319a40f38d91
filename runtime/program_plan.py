"""`ProgramPlan`: an MSCCL program as the executor runs it.

Threadblocks only say in which order one GPU's hardware takes the steps. What the program means is the data flow, which
`verify` has shown to be the same in every interleaving; so steps become operations in one of those orders, with the
dependencies that their places make, and run as soon as those allow.
"""

from __future__ import annotations

import hashlib

from latecomer.codegen.dependencies import with_dependencies
from latecomer.codegen.graph import Connection, StepGraph, in_order, step_graph
from latecomer.codegen.operations import LOCAL, Kind, Operation, OperationList, Place
from latecomer.codegen.verify import verify
from latecomer.runtime.steps import Steps, compile_steps
from latecomer.schedules.chunks import Chunks
from latecomer.schedules.errors import InputError
from latecomer.schedules.program import RECEIVES, SENDS, Program, Step

_COLLECTIVES = ("allreduce", "allgather", "reduce_scatter")


class ProgramPlan:
    """A program that has been verified. See `latecomer.runtime.plan.Plan`, whose attributes it has.

    Buffers are those of the whole message, as NCCL's in-place calls have them: an AllGather starts with each rank's
    piece where it belongs, a ReduceScatter leaves it there, and the rest of its result is of no use.

    Attributes
    ----------
    multiple, pads:
        The chunks of the message. An AllReduce whose message they do not divide is padded at the end; where the ranks
        have pieces of the message, that would move the pieces, so its elements must be a multiple.
    reduces:
        False for an AllGather, which takes no reduction.
    one_buffer, separate_input:
        The program works in place, or must not: the executor copies where the call is the other way.
    """

    keep_rounds = False
    late: int | None = None
    late_rank: int | None = None
    cuts = range(0)

    def __init__(self, program: Program) -> None:
        """Raises `IncorrectProgram`, and `InputError` for a collective that is not reduced or gathered."""
        if program.collective not in _COLLECTIVES:
            raise InputError(f"the executor runs {', '.join(_COLLECTIVES)}; this program is {program.collective}")
        verify(program)
        self.name = program.name or "program"
        self.ranks = program.ranks
        self.multiple = program.chunks
        self.pads = program.collective == "allreduce"
        self.reduces = program.collective != "allgather"
        self.one_buffer = program.in_place is not False
        self.separate_input = program.in_place is False
        self.digest = hashlib.sha256(repr((program.ranks, program.chunks, program.gpus)).encode()).hexdigest()[:16]
        self._operations = translate(program)

    def steps(self, rank: int, cut: int | None, elements: int) -> Steps:
        """What `rank` does for `elements` elements."""
        return compile_steps(self._operations, rank, elements, numbered=True)

    def prepare(self) -> None:
        """Nothing is left to be made."""


def translate(program: Program) -> OperationList:
    """The operations of a verified program. Both ends of a message carry its number in the program. O(steps)."""
    graph = step_graph(program)
    order = in_order(graph)
    assert order is not None, "a verified program has an order"
    numbers = _messages(graph, order)
    ranks = {gpu.id: _Rank(program, gpu.id, gpu.s_chunks) for gpu in program.gpus}
    blocks = {(gpu.id, block.id): block for gpu in program.gpus for block in gpu.threadblocks}
    for node in order:
        n = graph.nodes[node]
        block = blocks[n.gpu, n.tb]
        ranks[n.gpu].add(n.what, n.tb, block.send, block.recv, numbers.get((node, True)), numbers.get((node, False)))
    lists = [ranks[rank] for rank in range(program.ranks)]
    return OperationList(
        collective="allreduce",
        chunks=Chunks.equal([0] * program.chunks),
        operations=tuple(with_dependencies(rank.operations) for rank in lists),
        scratch=tuple((1,) * rank.cells for rank in lists),
        stages=(0,) * program.ranks,
        in_place=program.in_place is not False,
    )


def _messages(graph: StepGraph, order: list[int]) -> dict[tuple[int, bool], int]:
    """(node, it sends) → number of the message, in the order in which they are sent."""
    pair: dict[int, int] = {}
    for connection, sends in graph.sends.items():
        pair |= dict(zip(sends, graph.receives[Connection(*connection)], strict=True))
    numbers: dict[tuple[int, bool], int] = {}
    for number, node in enumerate(node for node in order if node in pair):
        numbers[node, True] = number
        numbers[pair[node], False] = number
    return numbers


class _Rank:
    """One rank's list while it is made."""

    def __init__(self, program: Program, rank: int, scratch: int) -> None:
        self.operations: list[Operation] = []
        self.cells = scratch
        self._share = program.chunks // program.ranks * rank
        self._program = program
        self._own: dict[int, tuple[int, int]] = {}
        """Threadblock → its cells (first, number) for what it receives and adds."""

    def add(self, step: Step, tb: int, to: int, source: int, sent: int | None, got: int | None) -> None:
        """Append what `step` of threadblock `tb` does; `to` and `source` are its peers."""
        src, dst = self._place(step.srcbuf, step.srcoff), self._place(step.dstbuf, step.dstoff)
        count = step.cnt
        arrived = dst
        if step.type in RECEIVES:
            assert got is not None
            if step.type not in ("r", "rcs"):
                arrived = Place("scratch", self._cells_of(tb, count))
            self._op("receive", source, got, count, None, None, arrived)
            if step.type in ("rrc", "rrcs"):
                self._op("reduce", LOCAL, got, count, src, arrived, dst)
            elif step.type == "rrs":
                self._op("reduce", LOCAL, got, count, src, arrived, arrived)
        elif step.type == "cpy":
            self._op("copy", LOCAL, 0, count, src, None, dst)
        elif step.type == "re":
            self._op("reduce", LOCAL, 0, count, dst, src, dst)
        if step.type in SENDS:
            assert sent is not None
            what = src if step.type == "s" else arrived if step.type == "rrs" else dst
            self._op("send", to, sent, count, what, None, None)

    def _op(
        self, kind: Kind, peer: int, message: int, count: int, src: Place | None, other: Place | None, dst: Place | None
    ) -> None:
        self.operations.append(Operation(kind, peer, message, 0, 0, 0, 0, count, src, other, dst))

    def _place(self, buffer: str, offset: int) -> Place:
        collective = self._program.collective
        if buffer == "s":
            return Place("scratch", offset)
        if buffer == "i":
            at = offset + (self._share if collective == "allgather" else 0)
            return Place("input" if self._program.in_place is False else "output", at)
        return Place("output", offset + (self._share if collective == "reduce_scatter" else 0))

    def _cells_of(self, tb: int, count: int) -> int:
        first, room = self._own.get(tb, (0, 0))
        if room < count:
            first = self.cells
            self.cells += count
            self._own[tb] = (first, count)
        return first
