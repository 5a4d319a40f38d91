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
    assert replay(schedule) == [
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


def replay(schedule: Schedule) -> list[dict[int, tuple[int, ...]]]:
    """Contributions to every chunk of every rank's output, in place, groups of NCCL as rendezvous."""
    table = lower(schedule)
    n, chunks = len(table.ranks), len(table.weights)
    unit = [tuple(int(r == rank) for r in range(n)) for rank in range(n)]
    memory = [dict.fromkeys(range(chunks), unit[rank]) for rank in range(n)]
    scratch: list[dict[tuple[int, int], tuple[int, ...]]] = [{} for _ in range(n)]

    def read(rank: int, spot: Spot, chunk: int) -> tuple[int, ...]:
        if spot.buffer in (INPUT, OUTPUT):
            return memory[rank][chunk]
        return scratch[rank][spot.buffer, spot.skip + chunk - base]

    def write(rank: int, spot: Spot, chunk: int, value: tuple[int, ...]) -> None:
        if spot.buffer == OUTPUT:
            memory[rank][chunk] = value
        else:
            assert spot.buffer >= 0
            scratch[rank][spot.buffer, spot.skip + chunk - base] = value

    position = [0] * n
    base = 0
    while any(position[r] < len(table.ranks[r].rounds) for r in range(n)):
        # A group is over when all of its messages have met; here: groups of the least (round, stage) go first.
        heads = [
            table.ranks[r].rounds[position[r]] if position[r] < len(table.ranks[r].rounds) else None for r in range(n)
        ]
        key = min((h.number, h.stage) for h in heads if h)
        group = [r for r, h in enumerate(heads) if h and (h.number, h.stage) == key]
        sent: dict[tuple[int, int], list[list[tuple[int, tuple[int, ...]]]]] = {}
        for r in group:
            for s in heads[r].moves:  # type: ignore[union-attr]
                if s.kind == "send":
                    assert s.src is not None
                    base = s.chunk
                    values = [(c, read(r, s.src, c)) for c in range(s.chunk, s.chunk + s.length)]
                    sent.setdefault((r, s.peer), []).append(values)
        for r in group:
            for s in heads[r].moves:  # type: ignore[union-attr]
                if s.kind == "receive":
                    assert s.dst is not None
                    base = s.chunk
                    values = sent[s.peer, r].pop(0)
                    assert [c for c, _ in values] == list(range(s.chunk, s.chunk + s.length))
                    for c, value in values:
                        write(r, s.dst, c, value)
        assert not any(sent.values()), "a send that nobody receives"
        for r in group:
            for s in heads[r].local:  # type: ignore[union-attr]
                base = s.chunk
                for c in range(s.chunk, s.chunk + s.length):
                    assert s.src is not None
                    assert s.dst is not None
                    value = read(r, s.src, c)
                    if s.kind == "reduce":
                        assert s.other is not None
                        value = tuple(a + b for a, b in zip(value, read(r, s.other, c), strict=True))
                    write(r, s.dst, c, value)
            position[r] += 1
    return [{c: v for c, v in m.items() if table.weights[c]} for m in memory]


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


def test_loops_of_a_circulant_plan_do_not_grow_with_its_chunks() -> None:
    few, many = (lower(plan("circulant", 8, chunks=k)) for k in (32, 128))
    counts = [sum(len(loop.rounds) for rank in t.ranks for loop in fold(rank.rounds)) for t in (few, many)]
    total = [sum(len(rank.rounds) for rank in t.ranks) for t in (few, many)]
    assert total[1] > 3 * total[0]
    assert counts[1] < total[1] / 1.5
