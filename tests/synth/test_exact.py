import pytest

from latecomer.schedules.check import check
from latecomer.schedules.chunks import Chunks
from latecomer.schedules.errors import InputError, LimitExceeded
from latecomer.synth import exact
from latecomer.synth.algorithms import circulant, rotation
from latecomer.synth.algorithms.assembly import synchronous
from latecomer.synth.algorithms.completion import Completion, least_rounds

from .completion_check import judge


@pytest.mark.parametrize(
    ("ranks", "chunks"), [(n, k) for n in (2, 3, 4) for k in (1, 2, 3)] + [(5, 1), (5, 2)]
)
def test_nothing_beats_the_bound_by_search_alone(ranks, chunks):
    answer = exact.completion(ranks, chunks, by_search_alone=True)
    assert answer.optimal
    assert answer.rounds == least_rounds(ranks, chunks)
    if answer.rounds > 1:
        assert exact.why_not(ranks, chunks, answer.rounds - 1)


@pytest.mark.parametrize(
    ("ranks", "chunks"), [(n, k) for n in range(2, 7) for k in range(1, 2 * n - 1) if n < 6 or k <= 7]
)
def test_constructions_need_no_more_rounds_than_the_search(ranks, chunks):
    for completion in (rotation.completion(ranks, chunks), circulant.completion(ranks, chunks)):
        answer = exact.completion(ranks, chunks, owners=completion.owners)
        assert answer.optimal
        assert completion.rounds == answer.rounds
        judge(Completion(answer.transfers, completion.owners, answer.rounds), ranks, chunks, relays=True)


@pytest.mark.parametrize(
    ("ranks", "chunks", "rounds"), [(2, 1, 1), (2, 2, 2), (3, 1, 3), (3, 2, 4), (3, 3, 4), (4, 1, 2)]
)
def test_synchronous_allreduce(ranks, chunks, rounds):
    answer = exact.allreduce(ranks, chunks)
    assert answer.optimal
    assert answer.rounds == rounds
    check(synchronous("exact", ranks, answer.transfers, Chunks.equal([c % ranks for c in range(chunks)])))


def test_allreduce_with_arrivals_waits_for_the_late_rank():
    answer = exact.allreduce(3, 2, ready=(0, 0, 2))
    # One round among the early ranks, then the completion of two chunks at three ranks.
    assert answer.rounds == 2 + least_rounds(3, 2)
    late = (answer.transfers.src == 2) | (answer.transfers.dst == 2)
    assert answer.transfers.round[late].min() >= 2


def test_a_search_that_stops_early_says_what_it_has():
    said = []
    answer = exact.completion(6, 10, time_limit_s=0.05, by_search_alone=True, progress=said.append)
    assert not answer.optimal
    assert answer.bound >= 10
    assert str(answer).endswith(f", proven ≥ {answer.bound}")
    assert "trying 10 rounds" in said[0]


def test_infeasible_names_the_constraints():
    assert "the late rank sends one chunk a round" in exact.why_not(3, 2, 2)
    assert exact.why_not(3, 2, 3) == ()


def test_errors():
    with pytest.raises(InputError, match="owners"):
        exact.completion(4, 2, owners=[0])
    with pytest.raises(InputError, match="arrival"):
        exact.allreduce(3, 1, ready=(0, 0))
    with pytest.raises(LimitExceeded, match="circulant"):
        exact.completion(64, 128)
    with pytest.raises(InputError, match="1 round"):
        exact.why_not(2, 1, 0)
