"""The table says what the schedule says, and its loops are the rounds again."""

from __future__ import annotations

import pytest

from latecomer.codegen.nccl_loops import fold
from latecomer.codegen.nccl_table import INPUT, OUTPUT, Round, Spot, Step, lower
from latecomer.schedules.arrivals import ArrivalProfile
from latecomer.schedules.chunks import Chunks
from latecomer.schedules.errors import InputError, NotApplicable
from latecomer.schedules.schedule import Phase, Provenance, Schedule
from latecomer.schedules.topology import Topology
from latecomer.schedules.transfers import Moves
from latecomer.synth.registry import ALGORITHMS
from latecomer.synth.synthesize import synthesize


def plan(algorithm: str, ranks: int, late: int | None = None, chunks: int | None = None) -> Schedule:
    arrivals = ArrivalProfile.late(ranks, ranks - 1 if late is None else late, 1e6)
    schedule = synthesize(Topology.switch(ranks, 450), arrivals, 1 << 26, algorithm=algorithm, chunks=chunks)
    return schedule.resolve(min(1, len(schedule.branches) - 1)) if schedule.branches else schedule


CASES = [
    (algorithm.name, ranks, chunks)
    for algorithm in ALGORITHMS
    if algorithm.name != "exact"
    for ranks, chunks in ((2, None), (4, 5), (5, 3), (7, None), (8, 20))
]


@pytest.mark.parametrize(("algorithm", "ranks", "chunks"), CASES)
def test_replayed_table_is_an_allreduce(algorithm: str, ranks: int, chunks: int | None) -> None:
    try:
        schedule = plan(algorithm, ranks, chunks=chunks)
    except NotApplicable:
        pytest.skip("not for this case")
    table = lower(schedule)
    folded = [expand(rank.rounds) for rank in table.ranks]
    assert folded == [[(r.moves, r.local) for r in rank.rounds] for rank in table.ranks]
    assert Replay(schedule).run() == [
        {c: tuple([1] * ranks) for c, w in enumerate(schedule.chunks.weights) if w} for _ in range(ranks)
    ]


def expand(rounds: tuple[Round, ...]) -> list[tuple[tuple[Step, ...], tuple[Step, ...]]]:
    result = []
    for loop in fold(rounds):
        for t in range(loop.times):
            for one in loop.rounds:
                parts = (
                    tuple(s._replace(chunk=s.chunk + t * loop.stride) for s in part) for part in (one.moves, one.local)
                )
                result.append(tuple(parts))
    return result


Sums = tuple[int, ...]
"""How often each rank's contribution is in a value."""


class Replay:
    """Runs a table in place, the groups of one (round, stage) on all ranks at once."""

    def __init__(self, schedule: Schedule) -> None:
        self.table = lower(schedule)
        n, chunks = schedule.ranks, len(schedule.chunks)
        self.memory = [dict.fromkeys(range(chunks), tuple(int(r == rank) for r in range(n))) for rank in range(n)]
        self.scratch: list[dict[tuple[int, int], Sums]] = [{} for _ in range(n)]

    def run(self) -> list[dict[int, Sums]]:
        """Every rank's chunks, empty ones left out."""
        left = [list(rank.rounds) for rank in self.table.ranks]
        while any(left):
            key = min((rounds[0].number, rounds[0].stage) for rounds in left if rounds)
            group = {
                r: rounds[0] for r, rounds in enumerate(left) if rounds and (rounds[0].number, rounds[0].stage) == key
            }
            self.together(group)
            for r in group:
                left[r].pop(0)
        return [{c: v for c, v in m.items() if self.table.weights[c]} for m in self.memory]

    def together(self, group: dict[int, Round]) -> None:
        sent: dict[tuple[int, int], list[tuple[int, list[Sums]]]] = {}
        moves = [(r, step) for r, one in group.items() for step in one.moves]
        for r, step in moves:
            if step.kind == "send":
                sent.setdefault((r, step.peer), []).append((step.chunk, self.read(r, step, step.src)))
        for r, step in moves:
            if step.kind == "receive":
                chunk, values = sent[step.peer, r].pop(0)
                assert (chunk, len(values)) == (step.chunk, step.length)
                self.write(r, step, values)
        assert not any(sent.values()), "a send that nobody receives"
        for r, one in group.items():
            for step in one.local:
                values = self.read(r, step, step.src)
                if step.kind == "reduce":
                    pairs = zip(values, self.read(r, step, step.other), strict=True)
                    values = [tuple(a + b for a, b in zip(x, y, strict=True)) for x, y in pairs]
                self.write(r, step, values)

    def read(self, rank: int, step: Step, spot: Spot | None) -> list[Sums]:
        assert spot is not None
        if spot.buffer in (INPUT, OUTPUT):
            return [self.memory[rank][step.chunk + k] for k in range(step.length)]
        return [self.scratch[rank][spot.buffer, spot.skip + k] for k in range(step.length)]

    def write(self, rank: int, step: Step, values: list[Sums]) -> None:
        assert step.dst is not None
        assert step.dst.buffer != INPUT
        for k, value in enumerate(values):
            if step.dst.buffer == OUTPUT:
                self.memory[rank][step.chunk + k] = value
            else:
                self.scratch[rank][step.dst.buffer, step.dst.skip + k] = value


def test_early_ranks_begin_with_groups_that_need_no_late_rank() -> None:
    for algorithm in ("stragglar", "tiling", "circulant", "all_pairs", "direct"):
        schedule = plan(algorithm, 8, late=3)
        table = lower(schedule)
        assert table.late == 3
        for rank in table.ranks:
            stages = [r.stage for r in rank.rounds]
            assert stages == sorted(stages)
            early = [r for r in rank.rounds if r.stage == 0]
            assert all(s.peer != 3 for r in early for s in r.moves)
        assert any(r.stage == 0 for rank in table.ranks for r in rank.rounds)


def _hand_made(moves: Moves, weights: tuple[int, ...] = (1, 1)) -> Schedule:
    return Schedule(
        ranks=2,
        binding=(0, 1),
        ports="exclusive",
        stages=(0, 0),
        phases=(Phase(kind="synchronous", stage=0),),
        chunks=Chunks(weights=weights, owners=tuple(range(len(weights)))),
        provenance=Provenance(tool="test", algorithm="by_hand"),
        transfers=moves.build(),
    )


def test_a_receive_over_what_its_group_sends_goes_to_scratch_first() -> None:
    moves = Moves()
    moves.copy(0, [0, 1], [1, 0], 0, dst_slot=0)  # both ranks replace chunk 0 while they send it
    rank = lower(_hand_made(moves)).ranks[0]
    receive = next(s for s in rank.rounds[0].moves if s.kind == "receive")
    assert receive.dst is not None
    assert receive.dst.buffer >= 0
    assert [s.kind for s in rank.rounds[0].local] == ["copy"]


def test_a_send_from_two_relay_slots_is_two_messages_on_both_ends() -> None:
    moves = Moves()
    moves.copy([0, 1], 0, 1, [0, 1], dst_slot=1)
    moves.copy(2, 1, 0, [0, 1], src_slot=1)
    schedule = _hand_made(moves)
    table = lower(schedule)
    assert [s.length for s in table.ranks[1].rounds[-1].moves if s.kind == "send"] == [1, 1]
    assert [s.length for s in table.ranks[0].rounds[-1].moves if s.kind == "receive"] == [1, 1]


def test_what_no_table_can_hold_is_refused() -> None:
    moves = Moves()
    moves.swap(0, 0, 1, [0, 1])
    schedule = _hand_made(moves)
    with pytest.raises(InputError, match="reduce_scatter"):
        lower(schedule.model_copy(update={"collective": "reduce_scatter"}))
    with pytest.raises(InputError, match="fewer chunks"):
        lower(_hand_made(moves, (2**31, 1)))
    adaptive = synthesize(Topology.switch(4, 450), ArrivalProfile.late(4, 3, 1e6), 1 << 20, algorithm="adaptive")
    with pytest.raises(InputError, match="decides at the last arrival"):
        lower(adaptive)


def test_reductions_of_one_chunk_stand_together() -> None:
    for rank in lower(plan("all_pairs", 5, chunks=3)).ranks[:4]:
        chunks = [step.chunk for step in rank.rounds[0].local]
        assert chunks == sorted(chunks)
        assert len(set(chunks)) < len(chunks)


def test_loops_of_a_circulant_plan_do_not_grow_with_its_chunks() -> None:
    few, many = (lower(plan("circulant", 8, chunks=k)) for k in (32, 128))
    counts = [sum(len(loop.rounds) for rank in t.ranks for loop in fold(rank.rounds)) for t in (few, many)]
    total = [sum(len(rank.rounds) for rank in t.ranks) for t in (few, many)]
    assert total[1] > 3 * total[0]
    assert counts[1] < total[1] / 1.5
