"""The schedule's text form, its validation, and the small nouns inside it."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latecomer.schedules.chunks import Chunks
from latecomer.schedules.errors import InputError
from latecomer.schedules.pattern import Pattern
from latecomer.schedules.schedule import Schedule
from latecomer.schedules.transfers import Moves, Transfers
from latecomer.synth.algorithms import all_pairs, ring, stragglar


@pytest.mark.smoke
@pytest.mark.parametrize(
    "make", [lambda: stragglar.schedule(8), lambda: all_pairs.adaptive(3, 4), lambda: ring.schedule(5)]
)
def test_json_round_trips_byte_for_byte(make):
    text = make().to_json()
    again = Schedule.from_json(text)
    assert again.to_json() == text
    assert again.transfers == make().transfers


def test_a_large_schedule_stays_pleasant():
    schedule = stragglar.schedule(256)
    assert len(schedule.transfers) == 255 * 254 + 255 * 256
    assert Schedule.from_json(schedule.to_json()).transfers == schedule.transfers


def damaged(change) -> str:
    data = json.loads(ring.schedule(3).to_json())
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "plan.json: not JSON, or cut off"),
        ("[]", 'plan.json: not a latecomer schedule: "format" should be'),
        ('{"format": "latecomer.schedule/9"}', "found 'latecomer.schedule/9'"),
        (damaged(lambda d: d.pop("ranks")), "plan.json: ranks: is missing"),
        (damaged(lambda d: d.update(surprise=1)), "plan.json: surprise: is not a field of this format"),
        (damaged(lambda d: d.update(binding=[0, 0, 1])), "binding must name each of the ranks 0 … 2 once"),
        (damaged(lambda d: d.update(stages=[1, 1, 1])), "stages must give every role a stage"),
        (damaged(lambda d: d["transfers"][0].update(src=[7, 0, 1])), "a transfer has src 7; the range is 0 … 2"),
        (damaged(lambda d: d["transfers"][0].update(chunk=[-1, 0, 1])), "a transfer has chunk -1"),
        (damaged(lambda d: d["transfers"][0].update(dst=[1])), "transfers: group 0: its lists must have the same"),
        (damaged(lambda d: d["transfers"][0].update(op="xor")), "group 0: op should be 'copy' or 'reduce', not 'xor'"),
        (damaged(lambda d: d["transfers"][0].update(src=[10**12, 0, 1])), "src holds a number that is out of range"),
        (damaged(lambda d: d.update(transfers=3)), "transfers: should be a list of groups"),
        (damaged(lambda d: d["transfers"][0].update(chunk=[0.9, 1, 2])), "something else than whole numbers"),
        (damaged(lambda d: d["transfers"][0].update(chunk=[True, 1, 2])), "something else than whole numbers"),
        (damaged(lambda d: d["transfers"][0].update(dst=0)), "group 0: dst should be a list, not 0"),
        (damaged(lambda d: d["transfers"][0].update(round=1.5)), "something else than whole numbers"),
        (damaged(lambda d: d["transfers"][0].update(colour=1)), "unknown field 'colour'"),
        (damaged(lambda d: d["transfers"][0].update(round=2 * 10**9)), "a transfer has round 2000000000; the range is"),
        (damaged(lambda d: d["phases"][0].update(stage=10**30)), "phases.0.stage"),
        (damaged(lambda d: d["phases"][0].update(x=1)), "phases.0.x: is not a field of this format"),
        (damaged(lambda d: d["chunks"].update(weights=[10**30, 1, 1])), "at most 2.53 keeps every size exact"),
        (
            damaged(lambda d: d["patterns"][0].update(roles=[0, 6, 2])),
            "patterns.0 names roles, phases, chunks or rounds",
        ),
        (damaged(lambda d: d["patterns"][0].update(rounds=10**9)), "patterns.0 names roles, phases, chunks or rounds"),
        (
            damaged(lambda d: d["patterns"][0].update(offsets=[10**9])),
            "patterns.0 names roles, phases, chunks or rounds",
        ),
        (
            damaged(lambda d: d.update(collective="allgather", chunks={"weights": [1, 1, 1], "owners": [-1, 0, 1]})),
            "owner must be a role 0",
        ),
        (damaged(lambda d: d.update(ranks=10**9)), "ranks: should be at most 65536, not 1000000000"),
        ('{"format": "latecomer.schedule/1", "ranks": 4, "ranks": 9}', "the field 'ranks' appears twice"),
        ('{"format": ' + "9" * 5000 + "}", "not JSON, or cut off"),
        (damaged(lambda d: d["chunks"].update(weights=[0, 0, 0])), "all chunks are empty"),
        (damaged(lambda d: d["chunks"].update(weights=[1, -1, 1])), "chunk 1 has a negative weight"),
        (damaged(lambda d: d["chunks"].update(owners=[0])), "3 weights but 1 owners"),
        (damaged(lambda d: d["chunks"].update(owners=[0, 1, 9])), "a chunk's owner must be a role"),
        (
            damaged(lambda d: d.update(branches=[{"prework_rounds": 1, "transfers": []}])),
            "branches must be one per number",
        ),
    ],
)
def test_damaged_text_is_refused_with_the_place(text, message):
    with pytest.raises(InputError, match=message):
        Schedule.from_json(text, "plan.json")


def test_every_fault_is_a_line_in_plain_words():
    text = damaged(lambda d: (
        d.update(ranks="many", ports=["shared"], surprise=1, transfers=[{"round": 0, "op": "copy", "src": [0]}]),
        d["phases"][0].update(kind="late", stage=-1), d["provenance"].update(tool=4, parameters={"k": [1]}),
        d["chunks"].update(weights=[], owners={}), d.pop("stages"),
    ))
    with pytest.raises(InputError) as caught:
        Schedule.from_json(text, "plan.json")
    assert str(caught.value).splitlines() == [
        'plan.json: ranks: should be a whole number, not "many"',
        "plan.json: ports: should be 'exclusive' or 'shared', not [\"shared\"]",
        "plan.json: stages: is missing",
        "plan.json: phases.0.kind: should be 'prework', 'completion' or 'synchronous', not \"late\"",
        "plan.json: phases.0.stage: should be 0 or more, not -1",
        "plan.json: chunks.weights: should have at least 1, and has 0",
        "plan.json: chunks.owners: should be a list, not {}",
        "plan.json: provenance.tool: should be a text, not 4",
        "plan.json: provenance.parameters.k: should be a whole number, a number, a text or a truth value, not [1]",
        "plan.json: transfers: group 0: it has no field 'chunk'",
        "plan.json: and 1 more fault",
    ]
    assert "group 0: it should be an object" in refusal(damaged(lambda d: d.update(transfers=[5])))
    assert "transfers: should be a list" in refusal(damaged(lambda d: d.update(transfers={})))
    assert refusal('{"format": "latecomer.schedule/1", "ranks": 4, "ranks": 9}').startswith(
        "plan.json: the field 'ranks' appears twice")


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        Schedule.from_json(text, "plan.json")
    return str(caught.value)


def test_a_schedule_without_transfers_is_written_too():
    adaptive = all_pairs.adaptive(2, 3)
    assert len(adaptive.transfers) == 0
    assert Schedule.from_json(adaptive.to_json()).to_json() == adaptive.to_json()


def test_no_such_branch():
    with pytest.raises(InputError, match="has no branch after 0 pre-work rounds: it has no branches"):
        ring.schedule(3).resolve(0)
    with pytest.raises(InputError, match="it has 0 … 4"):
        all_pairs.adaptive(3, 4).resolve(5)


def test_the_table_names_ranks_and_folds_swaps():
    text = str(stragglar.schedule(4).bound_to([3, 1, 2, 0]))
    assert "late rank 0" in text
    assert "0<>3 c0" in text
    assert "+c0" in text


@given(weights=st.lists(st.integers(0, 50), min_size=1, max_size=40).filter(any), elements=st.integers(0, 10**12))
def test_the_split_misses_nothing_and_is_exact(weights, elements):
    chunks = Chunks(weights=tuple(weights), owners=(0,) * len(weights))
    bounds = chunks.bounds(elements)
    assert bounds[0] == 0
    assert bounds[-1] == elements
    sizes = np.diff(bounds)
    for chunk, size in enumerate(sizes.tolist()):
        assert abs(size - chunks.fraction(chunk) * elements) < 1
        assert chunks.weights[chunk] or size == 0


def test_more_chunks_than_elements_leave_some_empty():
    assert np.diff(Chunks.equal([0] * 7).bounds(3)).tolist().count(0) == 4


def test_fractions_are_exact():
    assert Chunks(weights=(1, 2), owners=(0, 1)).fraction(1) == Fraction(2, 3)


def test_transfers_sort_by_round_and_keep_the_order_within():
    moves = Moves()
    moves.copy(1, 0, [1, 2], 0)
    moves.reduce(0, [2, 1], 0, 0)
    transfers = moves.build()
    assert transfers.round.tolist() == [0, 0, 1, 1]
    assert transfers.src.tolist() == [2, 1, 0, 0]
    assert Transfers.concat(transfers.where(transfers.round == 1), transfers.where(transfers.round == 0)) == transfers


def test_nothing_is_a_legal_set_of_transfers():
    assert len(Transfers.concat()) == 0
    assert Moves().build().rounds == 0


@settings(max_examples=30, deadline=None)
@given(ranks=st.integers(2, 9))
def test_patterns_of_the_ring_are_its_rows(ranks):
    schedule = ring.schedule(ranks)
    expanded = Transfers.concat(*(p.expand() for p in schedule.patterns))
    rows = sorted(zip(*(c.tolist() for c in schedule.transfers.columns()), strict=True))
    assert sorted(zip(*(c.tolist() for c in expanded.columns()), strict=True)) == rows


def test_a_clamped_pattern_repeats_the_last_chunk_and_skips_negative_ones():
    pattern = Pattern(
        op="copy",
        phase=0,
        first_round=0,
        rounds=4,
        roles=(0, 1),
        offsets=(1,),
        table=((-1,), (None,)),
        stride=1,
        wrap="clamp",
        chunks=2,
    )
    assert pattern.expand().chunk.tolist() == [0, 1, 1]
    assert pattern.expand().round.tolist() == [1, 2, 3]


def test_a_pattern_needs_a_full_table():
    with pytest.raises(ValueError, match="one row per position and one column per round"):
        Pattern(
            op="copy",
            phase=0,
            first_round=0,
            rounds=1,
            roles=(0, 1),
            offsets=(1,),
            table=((0,),),
            stride=0,
            wrap="cyclic",
            chunks=2,
        )
